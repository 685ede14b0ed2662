from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from ledger.checkpoints import find_checkpoints
from ledger.dataset.manifest import open_dataset
from ledger.errors import ConfigError, RefusedError
from ledger.storage.digests import tensor_table_sha256
from tests.trainer.records import events
from tests.trainer.tiny import tiny_config, train
from trainer.checkpoint import restore_checkpoint, write_tensors
from trainer.config import TrainerConfig
from trainer.randomness import capture_randomness, restore_randomness, seed_everything
from trainer.recipe import complete_config, fix_end
from trainer.schedule import ScheduleState
from trainer.state import build_state, tensor_entry


def _resolved(dataset, **sections) -> TrainerConfig:
    return fix_end(complete_config(tiny_config(dataset, **sections), open_dataset(dataset)))


def _draw() -> list[float]:
    legacy = np.random.normal()  # noqa: NPY002
    return [random.random(), random.gauss(0, 1), float(legacy), torch.rand(()).item(), torch.randn(()).item()]


def test_every_generator_goes_on_where_it_was():
    seed_everything(3)
    _draw()  # leaves half of a pair of normal numbers behind in two of them
    captured = capture_randomness()
    expected = [_draw() for _ in range(3)]
    restore_randomness(captured)
    assert [_draw() for _ in range(3)] == expected
    assert capture_randomness() != captured


def test_a_seed_decides_the_weights(dataset):
    one, same, other = (
        build_state(_resolved(dataset, run={"seed": seed})).capture().model for seed in (1, 1, 2)
    )
    assert one == same != other


def test_a_model_beyond_the_machine_is_a_configuration_to_change(dataset):
    huge = tiny_config(dataset, model={"vocabulary": 2**40, "width": 2**20})
    with pytest.raises(ConfigError, match="cannot be made here") as caught:
        build_state(huge)
    assert (caught.value.place, caught.value.exit_code) == ("model", 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_a_digest_covers_type_shape_and_every_bit(dtype):
    tensor = torch.arange(6).to(dtype).reshape(2, 3)
    entry = tensor_entry(tensor)
    assert entry == tensor_entry(tensor.t().contiguous().t())
    changed = tensor.clone()
    changed[1, 2] += 1
    assert entry.sha256 != tensor_entry(changed).sha256
    assert entry.shape != tensor_entry(tensor.reshape(3, 2)).shape


def test_what_the_files_hold_is_what_was_alive(dataset, tmp_path):
    train(tiny_config(dataset, run={"target_step": 2}), tmp_path / "run")
    (saved,) = find_checkpoints(tmp_path / "run")
    for part, name in (("model", "model.safetensors"), ("optimizer", "optimizer.safetensors")):
        tensors = saved.manifest.files[name].tensors
        assert tensors is not None
        assert tensor_table_sha256(tensors) == getattr(saved.manifest.state, part)


def test_the_same_state_is_the_same_file(dataset, tmp_path):
    state = build_state(_resolved(dataset))
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write_tensors(tmp_path / name, state, metadata={"ledger": "{}"})
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_tensors_of_another_model_are_refused(dataset, tmp_path):
    train(tiny_config(dataset, run={"target_step": 2}), tmp_path / "run")
    (saved,) = find_checkpoints(tmp_path / "run")
    with pytest.raises(RefusedError, match=r"blocks\.1"):
        restore_checkpoint(saved, build_state(_resolved(dataset, model={"layers": 2})))
    with pytest.raises(RefusedError, match=r"attention\.input\.weight"):
        restore_checkpoint(saved, build_state(_resolved(dataset, model={"kv_heads": 4})))


def test_the_rate_follows_updates_alone(dataset):
    schedule = ScheduleState(_resolved(dataset, run={"target_step": 8}))
    rates = []
    for _ in range(10):
        assert schedule.next_rates() == schedule.next_rates()
        rates.append(schedule.next_rates()["decay"])
        schedule.advance()
    assert rates[:3] == pytest.approx([1e-3, 2e-3, 3e-3])
    assert rates[2:8] == sorted(rates[2:8], reverse=True)
    assert rates[7] == rates[9] == pytest.approx(3e-4)
    twin = ScheduleState(_resolved(dataset, run={"target_step": 8}))
    twin.restore(schedule.capture())
    assert twin.next_rates() == schedule.next_rates()


def test_two_runs_of_one_recipe_are_the_same_bits(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 3})
    for name in ("one", "other"):
        train(config, tmp_path / name)
    chains = [
        [getattr(event, "state", None) for event in events(tmp_path / name)] for name in ("one", "other")
    ]
    assert chains[0] == chains[1]
