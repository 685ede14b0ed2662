"""Every writing command refuses a network file system, leaves nothing there, and writes where it is asked to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from data_prep.pipeline import prepare
from ledger.audit import reconcile
from ledger.cli import main
from ledger.errors import UnsafeError
from ledger.maintain import write_verdict
from ledger.pilot import Plan, run_pilot
from ledger.storage import mounts
from ledger.storage.filesystem import DurabilityWarning
from tests.data_prep.corpus import configure, texts, write_jsonl
from tests.support.faults import Snapshot
from tests.support.faults_scenarios import finish_run

pytest.importorskip("torch")

from ledger.config import dump_config
from tests.trainer.tiny import tiny_config, write_dataset
from trainer import cli as trainer_cli

REFUSED = 7


@pytest.fixture
def on_a_network(tmp_path_factory, monkeypatch) -> Callable[[], None]:
    """Let everything lie on a network file system from now on."""

    def switch() -> None:
        table = tmp_path_factory.mktemp("table") / "mountinfo"
        table.write_text("1 0 0:1 / / rw - nfs4 server rw\n", encoding="utf-8")
        monkeypatch.delenv(mounts.ALLOW_NETWORK_FS, raising=False)
        monkeypatch.setattr(mounts, "_MOUNT_TABLE", table)

    return switch


def test_preparing(tmp_path, on_a_network):
    config = configure(write_jsonl(tmp_path / "corpus.jsonl", texts(6)), tokenizer__vocabulary=258)
    on_a_network()
    with pytest.raises(UnsafeError, match="--allow-network-fs"):
        prepare(config, output=tmp_path / "below" / "data")
    assert not (tmp_path / "below").exists()
    with pytest.warns(DurabilityWarning):
        prepare(config, output=tmp_path / "data", allow_network_fs=True)
    prepare(config, output=tmp_path / "data")  # verifying what is there writes nothing


def test_training(tmp_path, on_a_network, capsys):
    config = tmp_path / "config.yaml"
    config.write_text(dump_config(tiny_config(write_dataset(tmp_path / "data"), run={"target_step": 1})))
    words = ["train", "--config", str(config), "--run", str(tmp_path / "run")]
    on_a_network()
    with pytest.raises(SystemExit) as ended:
        trainer_cli.main(words)
    assert ended.value.code == REFUSED
    assert "--allow-network-fs" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    with pytest.warns(DurabilityWarning), pytest.raises(SystemExit) as ended:
        trainer_cli.main([*words, "--allow-network-fs"])
    assert ended.value.code == 0


def test_keeping_a_verdict(tmp_path, on_a_network, capsys):
    finish_run(tmp_path)
    before = Snapshot.of(tmp_path)
    on_a_network()
    assert main(["reconcile", str(tmp_path / "run"), "--write"]) == REFUSED
    assert "--allow-network-fs" in capsys.readouterr().err
    assert Snapshot.of(tmp_path) == before
    with pytest.raises(UnsafeError):
        write_verdict(tmp_path / "run", reconcile(tmp_path / "run"))
    with pytest.warns(DurabilityWarning):
        assert main(["reconcile", str(tmp_path / "run"), "--write", "--allow-network-fs"]) == 0
    assert (tmp_path / "run" / "verdict.json").exists()


def test_a_pilot(tmp_path: Path, on_a_network):
    configs = Path(__file__).parents[2] / "configs"
    plan = Plan([configs / "tiny.yaml", configs / "pilots" / "tiny.yaml"], root=tmp_path / "pilot")
    on_a_network()
    with pytest.raises(UnsafeError, match="LEDGER_ALLOW_NETWORK_FS=1"):
        list(run_pilot(plan))
    assert not (tmp_path / "pilot").exists()
