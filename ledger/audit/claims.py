"""LG105, LG406: what lies beside the log and claims something of the run: a kept verdict, waivers, a lock, a parent.

None of it is evidence and no rule believes it. But a person does, so what cannot be read, is of another run or
contradicts the log is told. In a sealed run a file that is not the sealed one is LG705's alone.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from ledger.audit.files import Loaded
from ledger.audit.stream import Checker, Stream
from ledger.errors import NewerVersionError, UnsafeError
from ledger.records.documents import Evaluation, Verdict
from ledger.records.events import AnyEvent, UnknownEvent, Validation
from ledger.records.layout import PARENT, PARENT_MANIFEST, PARENT_RECIPE, RECIPE_LOCK, VERDICT, WAIVERS
from ledger.records.parts import Counters
from ledger.records.waivers import Waivers
from ledger.storage.atomic import is_temporary_name
from ledger.storage.log_reader import LogLine

__all__ = ["ClaimChecker"]


class ClaimChecker(Checker):
    """Part of LG105 and LG406; it must be the last to conclude, since it looks at what the others found."""

    rules: ClassVar[tuple[str, ...]] = ("LG105", "LG406")

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._verdict = self._load_verdict()
        head = None if self._verdict is None else self._verdict.log_head
        self._head = None if head is None else head.seq
        self._chain: str | None = None
        """Of the line at the kept verdict's head, once it was read."""
        self._at_head: tuple[Counters, Counters] | None = None
        """What the branch saw, and what was spent, at that line."""
        self._measured: set[str] = set()
        """Evaluations that an event names; LG601 and LG703 look at them."""

    def _load_verdict(self) -> Verdict | None:
        """Read verdict.json before the log, which then holds whatever it speaks of."""
        try:
            loaded = self.stream.files.load(VERDICT, Verdict)
        except NewerVersionError:
            self.findings.skip(VERDICT, "a newer version of the ledger wrote it")
            return None
        self._report_unreadable(loaded)
        return None if self._is_of_seal(loaded) else loaded.document

    def _report_unreadable(self, loaded: Loaded[Verdict] | Loaded[Waivers]) -> None:
        if loaded.document is not None or loaded.is_absent or self._is_of_seal(loaded):
            return
        if not isinstance(loaded.error, UnsafeError):  # LG406 says of every file what it is instead
            self.findings.add("LG406", f"cannot be read: {loaded.error}", where=loaded.path)

    def _is_of_seal(self, loaded: Loaded[Verdict] | Loaded[Waivers]) -> bool:
        """Tell whether LG705 says that a file is not the one that was sealed."""
        seal = self.stream.files.seal.document
        if seal is None:
            return False
        sealed = seal.files.get(loaded.path)
        return sealed is None or sealed.sha256 != loaded.sha256

    def on_val(self, event: Validation) -> None:
        """Note the evaluation that an event names."""
        if event.evaluation is not None:
            self._measured.add(event.evaluation.path)

    def on_line(self, line: LogLine) -> None:
        """Note the line at the head that the kept verdict speaks of."""
        if line.event is not None and line.event.seq == self._head:
            self._chain = line.chain

    def on_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Note where the run stood at that head."""
        if event.seq == self._head:
            self._at_head = (self.stream.history.branch_counters(), self.stream.history.spent())

    def finish(self) -> None:
        """Compare each claim with the run."""
        self._report_unreadable(self.stream.files.load(WAIVERS, Waivers))
        self._check_lock_and_parent()
        self._check_evaluations()
        if self._verdict is not None:
            self._check_verdict(self._verdict)

    def _check_lock_and_parent(self) -> None:
        facts, files = self.stream.history.facts, self.stream.files
        if facts is None:
            return
        names = files.names_in(".")
        if facts.recipe_lock_sha256 is None and RECIPE_LOCK in names:
            self._warn(
                RECIPE_LOCK, "the run was not started under a recipe lock; nothing was compared with it"
            )
        if facts.parent is None and PARENT in names:
            self._warn(PARENT, "the run did not branch from another one")
        known = {PARENT_MANIFEST, PARENT_RECIPE}
        for name in files.names_in(PARENT):
            if f"{PARENT}/{name}" not in known and not is_temporary_name(name):
                self.findings.add(
                    "LG406", "is no record of a parent: move it out of the run", where=f"{PARENT}/{name}"
                )

    def _warn(self, where: str, problem: str) -> None:
        if not self.stream.is_live:
            self.findings.add("LG406", problem, where=where, severity="warning")

    def _check_evaluations(self) -> None:
        """A measurement of another run is none of this one's, even where no event names it."""
        run_id = self.stream.history.run_id
        for loaded in self.stream.files.evaluations:
            if loaded.document is None or run_id is None or loaded.path in self._measured:
                continue
            if loaded.document.run_id != run_id:
                problem = f"is of run {loaded.document.run_id}: move it out of this one"
                self.findings.add("LG406", problem, where=loaded.path)
            else:
                self._check_step(loaded.path, loaded.document)

    def _check_step(self, where: str, found: Evaluation) -> None:
        """What was measured is a checkpoint that the run has or had, at its step."""
        measured = found.manifest_sha256
        if measured is None:
            return
        step = self._steps.get(measured)
        if step is None and measured not in self._pruned:
            self._warn(
                where, "measures a checkpoint that this run neither has nor had, by all that is on record"
            )
        elif step not in (None, found.step):
            problem = f"says step {found.step} of a checkpoint of step {step}"
            self.findings.add("LG406", problem, where=where)

    @cached_property
    def _steps(self) -> dict[str, int]:
        """Manifest digest of each checkpoint that is on the log or at hand to its step."""
        steps = {sha256: known.event.at.step for (_, sha256), known in self.stream.captured.items()}
        for folder in self.stream.files.complete_checkpoints.values():
            if folder.manifest.document is not None and folder.manifest.sha256 is not None:
                steps.setdefault(folder.manifest.sha256, folder.manifest.document.counters.step)
        return steps

    @cached_property
    def _pruned(self) -> set[str]:
        """Manifest digests of what retention removed."""
        return {event.manifest_sha256 for event in self.stream.history.pruned.values()}

    def _check_verdict(self, kept: Verdict) -> None:
        run_id, head = self.stream.history.run_id, kept.log_head
        if None not in (run_id, kept.run_id) and kept.run_id != run_id:
            self._contradict(f"is of run {kept.run_id}, not of {run_id}")
        elif kept.verdict == "passed" and None in (kept.run_id, head):
            self._contradict("says that a run passed, and not which one, or how far its log went")
        elif head is not None and self._chain != head.chain:
            has = "has no such line" if self._chain is None else "has another line there"
            self.findings.add(
                "LG105",
                f"speaks of the log up to seq {head.seq}, but the log {has}: it was cut or rewritten since, or the "
                "verdict is of a copy of the run that went on otherwise",
                where=VERDICT,
                evidence={"pinned": head.chain, "on the log": self._chain},
            )
        elif self._at_head not in (None, (kept.branch, kept.spent)):
            self._contradict("states other totals than the log up to its head")
        elif kept.verdict not in (counted := _outcomes(kept)):
            self._contradict(
                f"says {kept.verdict}, although by the findings that it counts it is {counted[0]}"
            )
        elif kept.verdict == "passed" and self._holds_no_more(kept):
            self._warn(VERDICT, "says that the run passed, which is so no more: see what else is found here")

    def _holds_no_more(self, kept: Verdict) -> bool:
        """Tell whether what the verdict was about does not pass here; in a sealed run LG705 says what changed.

        What a control run would have to show (LG8) was perhaps not asked then.
        """
        is_same = kept.log_head == self.stream.head and self.stream.files.seal.is_absent
        found = {
            rule for rule, counts in self.findings.rule_counts.items() if counts.keys() & {"error", "missing"}
        }
        return is_same and any(not rule.startswith("LG8") for rule in found)

    def _contradict(self, problem: str) -> None:
        self.findings.add("LG406", problem, where=VERDICT)


def _outcomes(kept: Verdict) -> tuple[str, ...]:
    """Return what a verdict may say by the findings that it counts; one of a live run is incomplete without any."""
    if kept.finding_counts.get("error"):
        return ("failed",)
    return ("incomplete",) if kept.finding_counts.get("missing") else ("passed", "incomplete")
