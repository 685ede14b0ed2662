"""What goes wrong with the position in the data, in the field: each fault, in a small loop, is found by its rule.

A loader may know what it did wrong (its cursor tells) or not (it claims the cursor that a right one would have; the
digests tell). Both kinds are here, because a loss curve shows neither: it often looks better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ledger.audit import reconcile
from ledger.dataset.prefetch import PrefetchingReader
from ledger.dataset.reader import Reader
from ledger.dataset.source import Microbatch
from ledger.records.documents import Verdict
from ledger.records.parts import Cursor, Position
from tests.ledger.audit.healthy import kill_at
from tests.ledger.audit.reading import TEXTS, Corpora, DataLoop, one_source, run_on, two_sources
from tests.support.toy import Killed

PER_EPOCH = 8
"""Microbatches of an epoch of TEXTS."""
TARGET = 14
"""28 microbatches, so that the audit reads each of them again."""


def behind(cursor: Cursor, microbatches: int) -> Cursor:
    """Return the cursor so many microbatches of 8 tokens on in the one source."""
    ((name, at),) = cursor.items()
    epoch, index = divmod(at.epoch * PER_EPOCH + at.offset // 8 + microbatches, PER_EPOCH)
    return {name: Position(max(0, epoch), index * 8)}


class RestartsAtTheBeginning(DataLoop):
    def fast_forward(self, cursor: Cursor) -> None:
        """Stay at the beginning."""


class SkipsOneTooFew(DataLoop):
    def fast_forward(self, cursor: Cursor) -> None:
        self.reader.restore(behind(cursor, -1))


class SkipsTwice(DataLoop):
    def fast_forward(self, cursor: Cursor) -> None:
        super().fast_forward(cursor)
        for _ in range(cursor["train"].offset // 8):
            self.reader.next()


class ForgetsAccumulation(DataLoop):
    def fast_forward(self, cursor: Cursor) -> None:
        start = dict.fromkeys(cursor, Position(0, 0))
        self.reader.restore(behind(start, self.draws // self.settings.accumulation))


class LosesTheEpoch(DataLoop):
    """Right in epoch 0, wrong in every later one."""

    def fast_forward(self, cursor: Cursor) -> None:
        self.reader.restore({"train": Position(0, cursor["train"].offset)})


class SkipsAnEpochAtItsEnd(DataLoop):
    """Right inside an epoch, wrong exactly at its end."""

    def fast_forward(self, cursor: Cursor) -> None:
        at_end = cursor["train"].offset == 0
        self.reader.restore(behind(cursor, PER_EPOCH if at_end else 0))


class LosesWhatWasFetched(DataLoop):
    """Fetches ahead and begins a new iterator after each epoch's end, without what waited in the old one."""

    def read(self) -> Microbatch:
        batch = super().read()
        if batch.cursor["train"].offset == 0:
            self.reader.next()
            self.reader.next()
        return batch


class CountsWhatWasFetched(DataLoop):
    """States the cursor of the reader, which is ahead of what was consumed."""

    def prepare(self, corpora: Corpora) -> None:
        super().prepare(corpora)
        self.inner, self.reader = self.reader, PrefetchingReader(self.reader, ahead=2)  # type: ignore[assignment]

    def draw(self) -> tuple[bytes, Cursor]:
        digest, _ = super().draw()
        for future in self.reader._waiting:  # type: ignore[attr-defined]
            future.result()
        return digest, self.inner.cursor


class CountsTwice(DataLoop):
    """Moves its cursor by two microbatches for each that it reads."""

    def draw(self) -> tuple[bytes, Cursor]:
        digest, cursor = super().draw()
        return digest, behind(cursor, self.draws)


class Unaware(DataLoop):
    """Claims the cursor that a right loader would have; what it really reads is another matter."""

    right: Reader

    def prepare(self, corpora: Corpora) -> None:
        super().prepare(corpora)
        self.right = corpora.reader()

    def restore(self, checkpoint) -> None:
        super().restore(checkpoint)
        self.right.restore(self.cursor)

    def draw(self) -> tuple[bytes, Cursor]:
        digest, _ = super().draw()
        return digest, self.right.next().cursor


class UnawareOfRestart(Unaware, RestartsAtTheBeginning):
    """The same seed at every start replays the same batches."""


class UnawareOfSkipping(Unaware, SkipsOneTooFew):
    pass


class UnawareOfSkippingTwice(Unaware, SkipsTwice):
    pass


class UnawareOfAccumulation(Unaware, ForgetsAccumulation):
    pass


class UnawareOfEpochs(Unaware, LosesTheEpoch):
    pass


class WrongAtTheSecondResume(UnawareOfSkipping):
    def fast_forward(self, cursor: Cursor) -> None:
        if cursor["train"].epoch:
            super().fast_forward(cursor)
        else:
            self.reader.restore(cursor)


class ReadsEpochsInOneOrder(Unaware):
    """Shuffles once and never again."""

    def read(self) -> Microbatch:
        if self.reader.cursor["train"].epoch:
            self.reader.restore({"train": Position(0, self.reader.cursor["train"].offset)})
        return self.reader.next()


class ChoosesSourcesAnew(DataLoop):
    """Puts each source where it stood, and begins the choice among them from the first microbatch."""

    def fast_forward(self, cursor: Cursor) -> None:
        self.reader._cursor = dict(cursor)


class SwapsSources(DataLoop):
    def fast_forward(self, cursor: Cursor) -> None:
        super().fast_forward(cursor)
        self.reader._cursor = dict(zip(cursor, reversed(cursor.values()), strict=True))


def sequential(run: Path) -> Corpora:
    return one_source(run, TEXTS)


def shuffled(run: Path) -> Corpora:
    return one_source(run, TEXTS, shuffle={"group_shards": 2, "seed": 3})


@dataclass(frozen=True, kw_only=True)
class Fault:
    loop: type[DataLoop]
    rules: str
    """Rules that must find it."""
    data: Callable[[Path], Corpora] = sequential
    kills: Sequence[int] = (8,)
    """Each session but the last dies before this microbatch of its own; checkpoints are 6 microbatches apart."""


FAULTS = [
    Fault(loop=RestartsAtTheBeginning, rules="LG210"),
    Fault(loop=SkipsOneTooFew, rules="LG210"),
    Fault(loop=SkipsTwice, rules="LG210"),
    Fault(loop=ForgetsAccumulation, rules="LG210"),
    Fault(loop=LosesTheEpoch, rules="LG210", kills=(14,)),
    Fault(loop=SkipsAnEpochAtItsEnd, rules="LG210", kills=(26,)),
    Fault(loop=LosesWhatWasFetched, rules="LG210", kills=()),
    Fault(loop=CountsWhatWasFetched, rules="LG210 LG505", kills=()),
    Fault(loop=CountsTwice, rules="LG210 LG505", kills=()),
    Fault(loop=UnawareOfRestart, rules="LG211 LG506"),
    Fault(loop=UnawareOfSkipping, rules="LG211 LG506"),
    Fault(loop=UnawareOfSkippingTwice, rules="LG506"),
    Fault(loop=UnawareOfAccumulation, rules="LG211 LG506"),
    Fault(loop=UnawareOfEpochs, rules="LG506", data=shuffled, kills=(14,)),
    Fault(loop=WrongAtTheSecondResume, rules="LG506", kills=(8, 8)),
    Fault(loop=ReadsEpochsInOneOrder, rules="LG211 LG506", data=shuffled, kills=()),
    Fault(loop=ChoosesSourcesAnew, rules="LG210", data=two_sources),
    Fault(loop=SwapsSources, rules="LG210", data=two_sources),
]


def train(run: Path, fault: Fault, *, loop: type[DataLoop]) -> Verdict:
    """Train with a loader, through all kills, and audit."""
    corpora = fault.data(run)
    for number, kill in enumerate(fault.kills):
        with pytest.raises(Killed):
            run_on(
                run,
                corpora,
                loop=loop,
                start="auto" if number else "fresh",
                before=kill_at("microbatch", time=kill),
                target_step=TARGET,
                checkpoint_interval=3,
            )
    run_on(
        run,
        corpora,
        loop=loop,
        start="auto" if fault.kills else "fresh",
        target_step=TARGET,
        checkpoint_interval=3,
    )
    return reconcile(run)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.loop.__name__)
def test_a_fault_of_the_loader_is_found(fault: Fault, tmp_path: Path):
    verdict = train(tmp_path / "run", fault, loop=fault.loop)
    errors = {finding.rule for finding in verdict.findings if finding.severity == "error"}
    assert set(fault.rules.split()) <= errors, verdict.findings
    assert verdict.verdict == "failed"


def shuffled_mix(run: Path) -> Corpora:
    return two_sources(run, shuffle={"group_shards": 2, "seed": 3})


BOTH = "LG211 LG506"
OTHER_RULES: dict[str, tuple[Callable[[Path], Corpora], dict[str, Any], str]] = {
    "another seed": (shuffled, {"shuffle": {"group_shards": 2, "seed": 4}}, "LG506"),
    "larger groups": (shuffled, {"shuffle": {"group_shards": 3, "seed": 3}}, "LG506"),
    "no shuffle": (shuffled, {"shuffle": None}, BOTH),
    "a shuffle": (sequential, {"shuffle": {"group_shards": 2, "seed": 3}}, "LG506"),
    "another seed of the mix": (two_sources, {"mix_seed": 6}, BOTH),
    "another weight": (two_sources, {"weight": 1.0}, BOTH),
    "another seed in a mix": (shuffled_mix, {"shuffle": {"group_shards": 2, "seed": 4}}, "LG506"),
}


def another_rule(corpora: Corpora, *, weight: float | None = None, **data: Any) -> Corpora:
    """Return the same datasets, read by another rule."""
    changed = {key: value for key, value in (dict(corpora.data) | data).items() if value is not None}
    if weight is not None:
        books = dict(corpora.data["sources"]["books"]) | {"weight": weight}
        changed["sources"] = dict(corpora.data["sources"]) | {"books": books}
    return replace(corpora, data=changed)


@pytest.mark.parametrize("name", OTHER_RULES)
@pytest.mark.parametrize("is_aware", [True, False], ids=["own cursor", "right cursor"])
def test_reading_by_another_rule_than_the_recipe_is_found_and_nothing_else(name, is_aware, tmp_path: Path):
    """Where sources are chosen otherwise, a loader that states its own cursor gives itself away there, too."""
    data, changes, rules = OTHER_RULES[name]

    class ByAnotherRule(DataLoop if is_aware else Unaware):  # type: ignore[misc]
        def prepare(self, corpora: Corpora) -> None:
            super().prepare(corpora)
            self.reader = another_rule(corpora, **changes).reader()

    fault = Fault(loop=ByAnotherRule, rules=rules, data=data, kills=())
    verdict = train(tmp_path / "run", fault, loop=ByAnotherRule)
    chooses = is_aware and changes.keys() & {"mix_seed", "weight"}
    expected = {*rules.split(), *(["LG210", "LG505"] if chooses else [])}
    assert {(finding.rule, finding.severity) for finding in verdict.findings} == {
        (rule, "error") for rule in expected
    }


def without_data(run: Path) -> Path:
    """Move the data of a run elsewhere."""
    run.with_name(f"{run.name}-data").rename(run.with_name("elsewhere"))
    return run


def test_a_jump_is_found_without_the_data_too(tmp_path: Path):
    fault = Fault(loop=SkipsOneTooFew, rules="LG210")
    train(tmp_path / "run", fault, loop=fault.loop)
    verdict = reconcile(without_data(tmp_path / "run"))
    assert "LG210" in {finding.rule for finding in verdict.findings}


@pytest.mark.parametrize("data", [sequential, shuffled, two_sources], ids=lambda data: data.__name__)
def test_a_loader_without_a_fault_is_silent_without_the_data_too(data, tmp_path: Path):
    train(tmp_path / "run", Fault(loop=DataLoop, rules="", data=data), loop=DataLoop)
    verdict = reconcile(without_data(tmp_path / "run"))
    assert verdict.findings == []
    assert {"LG502", "LG503", "LG504", "LG506"} <= verdict.not_checked.keys()


@pytest.mark.parametrize("data", [sequential, shuffled, two_sources], ids=lambda data: data.__name__)
@pytest.mark.parametrize("kills", [(), (8,), (14,), (26,), (8, 8)], ids=str)
def test_a_loader_without_a_fault_is_silent(data, kills, tmp_path: Path):
    fault = Fault(loop=DataLoop, rules="", data=data, kills=kills)
    verdict = train(tmp_path / "run", fault, loop=DataLoop)
    assert verdict.findings == []
    assert verdict.verdict == "passed"


def test_an_order_that_the_law_itself_repeats_is_a_hint(tmp_path: Path):
    """Two sequences have two orders only."""
    data = one_source(tmp_path / "run", TEXTS[:2], shuffle={"group_shards": 1, "seed": 3})
    run_on(tmp_path / "run", data, target_step=3)
    verdict = reconcile(tmp_path / "run")
    assert {(finding.rule, finding.severity) for finding in verdict.findings} == {("LG211", "hint")}
    assert verdict.verdict == "passed"
    without = reconcile(without_data(tmp_path / "run"))
    assert without.verdict == "incomplete" or not without.findings
