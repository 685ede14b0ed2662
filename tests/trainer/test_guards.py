from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledger.records.events import Overflow
from tests.trainer.records import assert_same_training, events
from tests.trainer.tiny import StopAfter, tiny_config, train
from trainer import loop
from trainer.config import GuardConfig, GuardsConfig
from trainer.guards import Guards

LOSS = GuardsConfig(loss=GuardConfig(factor=2.0, window=3))


def test_nothing_is_refused_before_the_window_is_full():
    guards = Guards(LOSS)
    for loss in (1.0, 100.0):
        assert not guards.refuse(loss=loss, grad_norm=1.0)
        guards.updated(loss=loss, grad_norm=1.0)
    assert not guards.refuse(loss=1e9, grad_norm=1.0)
    guards.updated(loss=2.0, grad_norm=1.0)
    assert guards.refuse(loss=4.1, grad_norm=1.0)
    assert not guards.refuse(loss=4.0, grad_norm=1.0)


def test_without_guards_nothing_is_refused_and_nothing_recorded():
    guards = Guards(GuardsConfig())
    guards.updated(loss=1.0, grad_norm=1.0)
    assert not guards.refuse(loss=1e9, grad_norm=1e9)
    assert guards.capture() is None


@given(st.lists(st.floats(0.1, 10.0), max_size=12), st.floats(0.1, 100.0))
def test_a_restored_guard_refuses_the_same(losses, probe):
    config = GuardsConfig(loss=GuardConfig(factor=1.5, window=4), grad_norm=GuardConfig(factor=3.0, window=2))
    guards, twin = Guards(config), Guards(config)
    for loss in losses:
        guards.updated(loss=loss, grad_norm=2 * loss)
    twin.restore(guards.capture())
    assert twin.capture() == guards.capture()
    assert twin.refuse(loss=probe, grad_norm=probe) == guards.refuse(loss=probe, grad_norm=probe)


def test_a_spike_is_skipped_and_a_resume_skips_the_same(dataset, tmp_path, monkeypatch):
    original = loop.forward

    def spiking(training, batch):
        loss = original(training, batch)
        return loss * 10 if batch.cursor["train"].offset == 7 * 32 else loss

    monkeypatch.setattr(loop, "forward", spiking)
    guards = {"loss": {"factor": 3.0, "window": 4}, "grad_norm": {"factor": 5.0, "window": 4}}
    config = tiny_config(dataset, run={"target_step": 20}, guards=guards)
    train(config, tmp_path / "control")
    skips = [event for event in events(tmp_path / "control") if isinstance(event, Overflow)]
    assert [event.reason for event in skips] == ["guard", "guard"]
    assert train(config, tmp_path / "run", stop=StopAfter(attempts=6)) == "interrupted"
    assert train(config, tmp_path / "run", resume="auto") == "completed"
    assert_same_training(tmp_path / "control", tmp_path / "run")
