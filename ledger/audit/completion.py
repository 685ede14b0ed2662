"""LG701 to LG704: whether the run may be called complete."""

from __future__ import annotations

from typing import ClassVar

from ledger.audit.evaluations import EvaluationRecordChecker
from ledger.audit.stream import Checker, Stream
from ledger.audit.track import Track
from ledger.history import KnownCheckpoint, Session
from ledger.records.documents import Evaluation, Severity
from ledger.records.fields import is_finite
from ledger.records.layout import EVALUATIONS, LOG
from ledger.records.parts import subtract_counters

__all__ = ["CompletionChecker"]


class CompletionChecker(Checker):
    """LG701, LG702, LG703, LG704."""

    rules: ClassVar[tuple[str, ...]] = ("LG701", "LG702", "LG703", "LG704")

    def __init__(self, stream: Stream, *, evaluations: EvaluationRecordChecker) -> None:
        super().__init__(stream)
        self._evaluations = evaluations
        self.is_complete = False
        """Whether the branch reached its target and its last session says so."""
        self.final: KnownCheckpoint | None = None
        """The checkpoint at the target, on the branch, if there is one."""

    def finish(self) -> None:
        """Check target, final checkpoint, final evaluation and the plan."""
        history = self.stream.history
        track = self.stream.track_of(history.sessions[-1].number) if history.sessions else None
        target = history.target_step()
        if track is None or target is None:
            return
        last = history.sessions[-1]
        self._check_target(last, target)
        self._check_plan(last, track, target)
        if last.last.step < target:
            for rule in ("LG702", "LG703"):
                self.findings.skip(rule, f"the branch stands at step {last.last.step} of {target}")
            return
        self.final = self._check_final_checkpoint(last, track, target)
        self._check_final_evaluation(last, track, self.final)

    def _check_target(self, last: Session, target: int) -> None:
        status = None if last.end is None else last.end.status
        where = f"{LOG} seq {last.latest.seq}"
        is_there = last.last.step >= target
        self.is_complete = is_there and status in {"completed", "closed"}
        if self.is_complete:
            if last.last.step > target:
                self.findings.add(
                    "LG701", f"step {last.last.step} is beyond the target {target}", where=where
                )
            return
        problem = (
            f"the branch stands at step {last.last.step} of {target}"
            if not is_there
            else f"the branch stands at its target {target}, but its last session {_how_it_ended(status)}"
        )
        severity: Severity = "error" if status in {"completed", "closed"} else "missing"
        if severity == "error":
            problem += f", yet the session ended {status!r}"
        self.findings.add("LG701", problem, where=where, severity=severity)

    def _check_final_checkpoint(self, last: Session, track: Track, target: int) -> KnownCheckpoint | None:
        policy = None if track.sections is None else track.sections.checkpoint
        if policy is None or policy.policy == "none":
            why = (
                "the recipe keeps no weights"
                if policy is not None
                else "the recipe states no checkpoint policy"
            )
            self.findings.exempt("LG702", why)
            return None
        complete = self.stream.files.complete_checkpoints
        known = [found for found in self._known_checkpoints() if found.path in complete]
        on_branch = self.stream.history.on_branch(known)
        final = [found for found in on_branch if found.counters.step == target]
        if final:
            return max(final, key=lambda found: found.session)
        claims_completion = last.end is not None and last.end.status == "completed"
        self.findings.add(
            "LG702",
            f"there is no complete checkpoint at step {target} on the branch" + _nearest(on_branch),
            where=f"{LOG} seq {last.latest.seq}",
            severity="error" if claims_completion and not self.stream.is_live else "missing",
        )
        return None

    def _known_checkpoints(self) -> list[KnownCheckpoint]:
        known = {found.path: found for found in self.stream.history.checkpoints()}
        for path, folder in self.stream.files.complete_checkpoints.items():
            manifest = folder.manifest.document
            if path not in known and manifest is not None and folder.manifest.sha256 is not None:
                known[path] = KnownCheckpoint(
                    path=path,
                    session=manifest.session,
                    counters=manifest.counters,
                    manifest_sha256=folder.manifest.sha256,
                    seq=manifest.log.seq,
                    kind=manifest.kind,
                )
        return list(known.values())

    def _check_final_evaluation(self, last: Session, track: Track, final: KnownCheckpoint | None) -> None:
        validation = track.start.data.validation
        evaluation = None if track.sections is None else track.sections.evaluation
        if validation is None or evaluation is None or not evaluation.enabled:
            self.findings.exempt("LG703", "the recipe has no validation")
            return
        has_weights = "LG702" not in self.findings.not_applicable
        if has_weights and final is None:
            self.findings.skip("LG703", "there is no final checkpoint to evaluate")
            return
        reasons = []
        for loaded in self.stream.files.evaluations:
            if loaded.document is None:
                continue
            problem = self._evaluation_problem(loaded.document, last, final, validation)
            problem = problem or self._evaluations.problem_of(loaded.path, loaded.document)
            if problem is None:
                return
            if "names another checkpoint" not in problem:
                reasons.append(f"{loaded.path} {problem}")
        what = final.path if final is not None else "the final state"
        self.findings.add(
            "LG703",
            f"no complete, finite evaluation of {what} is on record"
            + (f": {'; '.join(reasons[:3])}" if reasons else ""),
            where=EVALUATIONS,
            severity="missing",
        )

    def _evaluation_problem(
        self, found: Evaluation, last: Session, final: KnownCheckpoint | None, validation: str
    ) -> str | None:
        end_state = None if last.end is None else last.end.state
        if found.run_id != self.stream.history.run_id:
            return "is of another run"
        if final is not None and found.manifest_sha256 != final.manifest_sha256:
            return "names another checkpoint"
        if final is None and (
            found.state is None or end_state is None or found.state.model != end_state.model
        ):
            return "is not of the final state"
        if found.step != last.last.step:
            return f"is of step {found.step}"
        if found.data_sha256 != validation:
            return "measures other data than the run's validation data"
        if not found.complete:
            return "measured a subset"
        return None if is_finite(found.loss) else f"has loss {found.loss}"

    def _check_plan(self, last: Session, track: Track, target: int) -> None:
        history = self.stream.history
        facts = history.facts
        done = history.branch_counters()
        size = track.start.tokens_per_microbatch
        remainder = done.microbatches - done.attempts * track.start.accumulation
        explained = done.attempts * track.tokens_per_update + remainder * size
        where = f"{LOG} seq {last.latest.seq}"
        if done.tokens_seen != explained:
            self.findings.add(
                "LG704",
                f"the branch saw {done.tokens_seen} tokens, but its {done.attempts} attempts explain "
                f"{explained}",
                where=where,
                evidence={"seen": done.tokens_seen, "explained": explained},
            )
        first = history.sessions[0].start
        if facts is not None:
            planned = (
                max(0, facts.target_step - first.step) * first.tokens_per_microbatch * first.accumulation
            )
            if facts.planned_tokens != planned:
                self.findings.add(
                    "LG704",
                    f"the plan says {facts.planned_tokens} tokens, but {facts.target_step - first.step} "
                    f"updates take {planned}",
                    where=f"{LOG} seq {first.seq}",
                    evidence={"planned": facts.planned_tokens, "expected": planned},
                )
        if last.last.step == target:
            self._check_actual(target, track, where)

    def _check_actual(self, target: int, track: Track, where: str) -> None:
        history = self.stream.history
        done = subtract_counters(history.sessions[-1].last, history.starting_counters)
        planned = max(0, target - history.starting_counters.step) * track.tokens_per_update
        in_skips = done.skipped * track.tokens_per_update
        remainder = (
            done.microbatches - done.attempts * track.start.accumulation
        ) * track.start.tokens_per_microbatch
        if done.tokens_seen != planned + in_skips + remainder and not self.findings.has("LG704"):
            self.findings.add(
                "LG704",
                f"{done.tokens_seen} tokens were seen; the plan's {planned} and {in_skips} in skipped "
                "attempts do not explain them",
                where=where,
                evidence={"seen": done.tokens_seen, "planned": planned, "skipped": in_skips},
            )


def _nearest(known: list[KnownCheckpoint]) -> str:
    if not known:
        return ", nor any other"
    latest = max(known, key=lambda found: (found.counters.microbatches, found.session))
    return f"; the latest is {latest.path}: a new session on it can reach the target and take one"


def _how_it_ended(status: str | None) -> str:
    return "has no end" if status is None else f"ended {status!r}"
