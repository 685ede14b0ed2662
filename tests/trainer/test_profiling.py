from __future__ import annotations

import json

from ledger.audit import reconcile
from ledger.records.events import SessionEnd
from tests.trainer.records import events
from tests.trainer.tiny import tiny_config, train


def test_a_window_is_profiled_and_its_time_counted(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 5}, profiler={"start_step": 2, "steps": 2})
    assert train(config, tmp_path / "run") == "completed"
    (trace,) = (tmp_path / "run" / "logs").iterdir()
    assert trace.name == "profile-step-00000003-s01.json"
    assert json.loads(trace.read_bytes())["traceEvents"]
    end = events(tmp_path / "run")[-1]
    assert isinstance(end, SessionEnd)
    assert end.phases["profile"] > 0
    assert reconcile(tmp_path / "run").finding_counts["error"] == 0


def test_a_run_that_ends_within_the_window_still_writes_what_was_seen(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 3}, profiler={"start_step": 2, "steps": 9})
    assert train(config, tmp_path / "run") == "completed"
    assert not (tmp_path / "run" / "logs").exists()
