"""LG703: each evaluation on the log against its file, and against the text that it says it measured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Final

from ledger.audit.corpus import TRAIN, Corpus
from ledger.audit.stream import Checker, Stream
from ledger.records.documents import Evaluation
from ledger.records.events import Validation
from ledger.records.layout import EVALUATIONS

__all__ = ["EvaluationRecordChecker"]

SHARED: Final = ("split", "data_sha256", "loss", "tokens", "batches", "complete", "metrics")
"""What an event and its file both state."""

_OF_A_SESSION: Final = re.compile(rf"{EVALUATIONS}/.+-step-[0-9]{{8,}}-s([0-9]{{2,}})\.json\Z")


class EvaluationRecordChecker(Checker):
    """Part of LG703; whether the final evaluation is there is the completion's question."""

    rules: ClassVar[tuple[str, ...]] = ("LG703",)

    def __init__(self, stream: Stream, *, corpus: Corpus) -> None:
        super().__init__(stream)
        self._corpus = corpus
        self._named: set[str] = set()
        self._complete: dict[tuple[str, str], Validation] = {}
        """The first complete evaluation of each split of some data."""

    def on_val(self, event: Validation) -> None:
        """Compare an evaluation with its file and its text."""
        problems = [*self._text_problems(event), *self._extent_problems(event)]
        if event.evaluation is not None:
            self._named.add(event.evaluation.path)
            loaded = self.stream.files.load(event.evaluation.path, Evaluation)
            if loaded.document is not None and loaded.sha256 == event.evaluation.sha256:
                problems += self._file_problems(event, loaded.document)
            elif loaded.sha256 == event.evaluation.sha256:
                problems.append(f"its file cannot be read: {loaded.error}")
        for problem in problems:
            self.findings.add(
                "LG703",
                f"the evaluation of {event.split}: {problem}",
                where=self.stream.where,
                severity="error",
            )

    def _file_problems(self, event: Validation, found: Evaluation) -> Iterator[str]:
        for name in SHARED:
            here, there = getattr(event, name), getattr(found, name)
            if here != there:
                yield f"{name} is {here}, in its file {there}"
        if found.step != event.step:
            yield f"it was made at step {event.step}, its file says {found.step}"
        if found.run_id != self.stream.history.run_id:
            yield f"its file is of run {found.run_id}"
        track = self.stream.track
        if track is not None and found.environment_sha256 != track.start.environment_sha256:
            yield "its file names another environment than its session"
        yield from self._checkpoint_problems(event, found)

    def _checkpoint_problems(self, event: Validation, found: Evaluation) -> Iterator[str]:
        steps = {sha256: known.event.step for (_, sha256), known in self.stream.captured.items()}
        measured = steps.get(found.manifest_sha256 or "", event.step)
        if measured != event.step:
            yield f"its file names the checkpoint of step {measured}"

    def _text_problems(self, event: Validation) -> Iterator[str]:
        positions = self._corpus.positions_of(event.data_sha256, event.split)
        if event.complete and positions is not None and event.tokens < positions:
            yield f"it is called complete with {event.tokens} of {positions} target positions"

    def _extent_problems(self, event: Validation) -> Iterator[str]:
        if not event.complete:
            return
        first = self._complete.setdefault((event.split, event.data_sha256), event)
        if first.tokens != event.tokens:
            yield (
                f"it is called complete with {event.tokens} target positions, and so is that of seq {first.seq} with "
                f"{first.tokens}, of the same data: one of the two measured a part"
            )

    def problem_of(self, path: str, found: Evaluation) -> str | None:
        """Return why a file cannot stand for the final evaluation, whatever it measured."""
        match = _OF_A_SESSION.match(path)
        session = None if match is None else self.stream.track_of(int(match[1]))
        if session is not None and session.end is not None and path not in self._named:
            return f"is named by no val event of session {session.number}, which ended"
        if found.split == TRAIN or any(
            found.split in track.start.cursor for track in self.stream.tracks.values()
        ):
            return f"measures {found.split}, which the run trains on"
        positions = self._corpus.positions_of(found.data_sha256, found.split)
        if found.complete and positions is not None and found.tokens < positions:
            return f"is called complete with {found.tokens} of {positions} target positions"
        return None
