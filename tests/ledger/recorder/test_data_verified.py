"""What was rehashed while training becomes events, written by the loop's own thread alone."""

from __future__ import annotations

import threading

import pytest

from ledger.errors import UsageError
from ledger.records.events import DataVerified
from tests.support.audited import audit
from tests.support.reading import events
from tests.support.toy import attempt, consume, record

SHA256 = "ab" * 32


def test_a_shard_that_was_rehashed_is_an_event_also_inside_a_window(tmp_path):
    def body(recorder, loop):
        attempt(recorder, loop)
        consume(recorder, loop)
        recorder.data_verified(shard="train-00000.npy", sha256=SHA256, seconds=0.5)
        digest = consume(recorder, loop)
        recorder.updated(loss=loop.learn(digest), grad_norm=0.5, lr={"all": 0.01})

    record(tmp_path / "run", body)
    (event,) = [event for event in events(tmp_path / "run") if isinstance(event, DataVerified)]
    assert (event.shard, event.sha256, event.seconds) == ("train-00000.npy", SHA256, 0.5)
    assert (event.step, event.microbatches) == (1, 3)
    audit(tmp_path / "run")


def test_another_thread_cannot_write_it(tmp_path):
    refused: list[UsageError] = []

    def body(recorder, _loop):
        def report() -> None:
            try:
                recorder.data_verified(shard="train-00000.npy", sha256=SHA256, seconds=0.5)
            except UsageError as error:
                refused.append(error)

        thread = threading.Thread(target=report)
        thread.start()
        thread.join()

    record(tmp_path / "run", body)
    assert "another thread" in str(refused[0])
    assert not [event for event in events(tmp_path / "run") if isinstance(event, DataVerified)]
    audit(tmp_path / "run")


def test_nothing_can_be_verified_after_the_end(tmp_path):
    def body(recorder, _loop):
        recorder.end()
        with pytest.raises(UsageError, match="ended"):
            recorder.data_verified(shard="train-00000.npy", sha256=SHA256, seconds=0.5)

    record(tmp_path / "run", body)
