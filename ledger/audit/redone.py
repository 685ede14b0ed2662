"""LG306: redone work agrees. Every real interruption is an experiment in repeatability, for free."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ledger.audit.causes import cause_of_batches, cause_of_measure
from ledger.audit.evidence import differing_measures, train_at
from ledger.audit.stream import Checker, Stream
from ledger.audit.track import Track
from ledger.records.documents import Severity
from ledger.records.layout import LOG

__all__ = ["RedoneChecker"]


class RedoneChecker(Checker):
    """Compares each session with every earlier one that processed the same microbatches."""

    rules: ClassVar[tuple[str, ...]] = ("LG306",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.compared = 0
        """Places that two sessions both logged."""

    def finish(self) -> None:
        """Go through the pairs of sessions whose work overlaps."""
        tracks = [track for _, track in sorted(self.stream.tracks.items())]
        has_overlap = False
        for index, later in enumerate(tracks):
            for earlier in tracks[:index]:
                if self._overlaps(earlier, later):
                    has_overlap = True
                    self._compare(earlier, later)
        if not has_overlap:
            self.findings.exempt("LG306", "no work was done twice")
        elif not self.compared:
            self.findings.skip("LG306", "not testable: no place was logged by both sides of redone work")

    def _overlaps(self, earlier: Track, later: Track) -> bool:
        ends = {session.number: session.last.microbatches for session in self.stream.history.sessions}
        begin = max(earlier.start.microbatches, later.start.microbatches)
        return begin < min(ends.get(earlier.number, 0), ends.get(later.number, 0))

    def _compare(self, earlier: Track, later: Track) -> None:
        ours, theirs = _common(earlier, later)
        self.compared += len(ours)
        differing = _differs(earlier, later, ours, theirs, "chain")
        first = int(differing[0]) if differing.size else len(ours)
        if differing.size:
            self._report_data(earlier, later, int(ours[first]), int(theirs[first]))
        self._compare_measures(earlier, later, ours[:first], theirs[:first])
        self._compare_skips(earlier, later)

    def _compare_measures(
        self, earlier: Track, later: Track, ours: NDArray[Any], theirs: NDArray[Any]
    ) -> None:
        same_window = ~_mask(earlier, later, ours, theirs, "window_start")
        # An interrupted session may end before the attempt that the other side made of the same microbatches.
        same_window &= _are_whole(earlier, ours) & _are_whole(later, theirs)
        ours, theirs = ours[same_window], theirs[same_window]
        differing = np.flatnonzero(
            _mask(earlier, later, ours, theirs, "measured")
            | _mask(earlier, later, ours, theirs, "step")
            | _mask(earlier, later, ours, theirs, "attempts")
        )
        if not differing.size:
            return
        row, other = int(ours[differing[0]]), int(theirs[differing[0]])
        run_dir = self.stream.files.run_dir
        first, second = train_at(run_dir, earlier, row), train_at(run_dir, later, other)
        if first is None or second is None:
            problem = "what was measured differs"
        elif (first.step, first.attempts) != (second.step, second.attempts):
            problem = f"step is {second.step} of {second.attempts} attempts, before {first.step} of {first.attempts}"
        else:
            name, before, after = next(differing_measures(first, second), ("a measure", "?", "?"))
            cause = cause_of_measure(name, track=later, step=second.step)
            problem = f"{name} is {after}, before {before}, although the batch digests agree, {cause}"
        self._report(earlier, later, later.rows.step[other], later.rows.seq[other], problem)

    def _compare_skips(self, earlier: Track, later: Track) -> None:
        before = {skip.attempts: skip for skip in earlier.skips}
        for skip in later.skips:
            other = before.get(skip.attempts)
            if other is not None and other.measured != skip.measured:
                problem = (
                    f"attempt {skip.attempts} was skipped again, but with another reason, loss, norm or scale: compare "
                    f"the overflow events seq {other.seq} and {skip.seq}; where the batches agree, look at the weights"
                )
                self._report(earlier, later, skip.step, skip.seq, problem)
                return

    def _report_data(self, earlier: Track, later: Track, before: int, row: int) -> None:
        run_dir, microbatches = self.stream.files.run_dir, later.rows.microbatches[row]
        first, second = train_at(run_dir, earlier, before), train_at(run_dir, later, row)
        cause = ""
        if first is not None and second is not None:
            cause = "; " + cause_of_batches(second, first, of=earlier)
        problem = f"data_chain differs after {microbatches} microbatches: other batches were read than before{cause}"
        self._report(earlier, later, later.rows.step[row], later.rows.seq[row], problem)

    def _report(self, earlier: Track, later: Track, step: int, seq: int, problem: str) -> None:
        severity, weakened = self._severity(earlier, later)
        self.findings.add(
            "LG306",
            f"session {later.number} redid work of session {earlier.number}; at step {step} "
            f"{problem}{weakened}",
            where=f"{LOG} seq {seq}",
            severity=severity,
            evidence={"sessions": [earlier.number, later.number], "step": step},
        )

    def _severity(self, earlier: Track, later: Track) -> tuple[Severity, str]:
        if earlier.start.identity_sha256 != later.start.identity_sha256:
            return "hint", " (the two have other identities)"
        if earlier.start.environment_sha256 != later.start.environment_sha256:
            return "hint", " (the two ran in other environments)"
        if not (_is_deterministic(earlier) and _is_deterministic(later)):
            return "hint", " (the recipe does not declare deterministic execution)"
        return "error", ""


def _is_deterministic(track: Track) -> bool:
    section = None if track.sections is None else track.sections.determinism
    return section is not None and section.deterministic


def _common(earlier: Track, later: Track) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the rows of both at which they logged the same number of microbatches."""
    ours = np.frombuffer(earlier.rows.microbatches, dtype=np.uint64)
    theirs = np.frombuffer(later.rows.microbatches, dtype=np.uint64)
    _, first, second = np.intersect1d(ours, theirs, return_indices=True)
    return first, second


def _are_whole(track: Track, rows: NDArray[Any]) -> NDArray[Any]:
    whole = [track.rows.remainder(int(row), start=track.start) == 0 for row in rows]
    return np.array(whole, dtype=np.bool_)


def _mask(
    earlier: Track, later: Track, ours: NDArray[Any], theirs: NDArray[Any], column: str
) -> NDArray[Any]:
    one = np.frombuffer(getattr(earlier.rows, column), dtype=np.uint64)[ours]
    other = np.frombuffer(getattr(later.rows, column), dtype=np.uint64)[theirs]
    unequal: NDArray[Any] = one != other
    return unequal


def _differs(
    earlier: Track, later: Track, ours: NDArray[Any], theirs: NDArray[Any], column: str
) -> NDArray[Any]:
    return np.flatnonzero(_mask(earlier, later, ours, theirs, column))
