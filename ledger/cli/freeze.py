"""`ledger freeze`: a passed pilot becomes a recipe lock; `--check` compares a configuration with one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from ledger.cli.options import AsJson
from ledger.cli.output import print_lines, print_record
from ledger.errors import UsageError
from ledger.locks import read_lock
from ledger.pilot.budget import DEFAULT_PREEMPTIONS_PER_DAY
from ledger.pilot.comparing import Difference, recipe_against_lock
from ledger.pilot.freeze import freeze_pilot, replaced_lock, write_lock
from ledger.pilot.plan import Resolved
from ledger.pilot.processes import ask_module
from ledger.records.locks import RecipeLock
from ledger.records.parts import DataIdentities
from ledger.report.budget import budget_lines
from ledger.report.lines import Line, blank, heading, table
from ledger.report.outputs import FreezeCheckOutput, FreezeOutput, LockDifference

__all__ = ["command"]

DEFAULT_OUTPUT: Final = Path("recipe.lock.json")
MOST_PER_DAY: Final = 86_400.0


def command(
    pilot: Annotated[
        Path | None, typer.Argument(metavar="PILOT", help="The folder of a pilot that passed.")
    ] = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help=f"The lock; {DEFAULT_OUTPUT} when omitted."),
    ] = None,
    preemptions: Annotated[
        float | None,
        typer.Option(
            "--preemptions",
            metavar="PER_DAY",
            help=f"Interruptions a day that the budget reckons with; {DEFAULT_PREEMPTIONS_PER_DAY:g} when omitted.",
        ),
    ] = None,
    replaces: Annotated[
        Path | None,
        typer.Option("--replaces", metavar="OLD", help="The lock that this one takes the place of."),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why the recipe was changed.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing: compare a configuration with the lock of --recipe."),
    ] = False,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", metavar="LOCK", help="With --check: the lock.")
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", metavar="FILE", help="With --check: a configuration; may be repeated."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="With --check: a dotted key; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Turn a passed pilot into the lock of its recipe, after verifying every stage of it again.

    A lock is never overwritten: an approved change is a new lock with --replaces OLD --reason TEXT. With --check a
    configuration is compared with a lock instead: every difference is listed by what it is, and the exit is 1 if there
    is one that the lock forbids.
    """
    if check:
        _check(pilot, recipe, config or [], overrides or [], as_json=as_json)
        return
    if config or overrides or recipe is not None:
        raise UsageError("--config, --set and --recipe belong to --check", advice="say --check to compare")
    if pilot is None:
        raise UsageError("no pilot is given", expected="ledger freeze PILOT -o recipe.lock.json")
    if (replaces is None) != (reason is None):
        raise UsageError("--replaces and --reason belong together", expected="--replaces OLD --reason TEXT")
    per_day = DEFAULT_PREEMPTIONS_PER_DAY if preemptions is None else preemptions
    if not 0 <= per_day <= MOST_PER_DAY:
        raise UsageError(
            f"--preemptions {per_day:g} is out of range", expected=f"0 to {MOST_PER_DAY:g} a day"
        )
    named = None if replaces is None else replaced_lock(replaces, reason=reason or "")
    lock = freeze_pilot(pilot, per_day=per_day, replaces=named, report=_say)
    target = DEFAULT_OUTPUT if output is None else output
    sha256 = write_lock(lock, target, over=replaces)
    if as_json:
        print_record(FreezeOutput(path=str(target), sha256=sha256, lock=lock))
    else:
        print_lines(_lock_lines(lock, target, sha256))


def _say(stage: str) -> None:
    sys.stderr.write(f"verifying {stage}\n")


def _lock_lines(lock: RecipeLock, path: Path, sha256: str) -> list[Line]:
    stages = list(dict.fromkeys(pilot.stage for pilot in lock.pilots))
    lines = [
        Line(f"froze {path}, SHA-256 {sha256}"),
        Line(f"recipe {lock.identity_sha256}, {lock.target_step:,} updates, {lock.planned_tokens:,} tokens"),
        Line(f"rests on {len(lock.pilots)} runs that passed: {', '.join(stages)}"),
    ]
    if lock.replaces is not None:
        lines.append(Line(f"replaces {lock.replaces.sha256}: {lock.replaces.reason}"))
    if lock.budget is not None:
        lines += [
            blank(),
            heading("budget: a projection from the pilot, no promise"),
            *budget_lines(lock.budget),
        ]
    lines += [blank(), heading("what the lock cannot hold still")]
    return [*lines, *(Line(f"  {text}", "yellow") for text in lock.unpinned)]


def _check(
    pilot: Path | None, recipe: Path | None, configs: list[Path], overrides: list[str], *, as_json: bool
) -> None:
    if pilot is not None or recipe is None or not configs:
        raise UsageError(
            "--check compares a configuration with a lock",
            expected="ledger freeze --check --recipe LOCK --config FILE [--config FILE …]",
        )
    lock = read_lock(recipe)
    resolved = _resolved(configs, overrides)
    data = None
    if resolved.train_sha256 is not None:
        data = DataIdentities(train=resolved.train_sha256, validation=resolved.validation_sha256)
    found = recipe_against_lock(lock, resolved.recipe, data=data, parts=resolved.parts)
    held = [difference for difference in found if difference.is_held]
    if as_json:
        print_record(FreezeCheckOutput(allowed=not held, differences=[_as_json(one) for one in found]))
    else:
        print_lines(_difference_lines(found, recipe))
    raise typer.Exit(1 if held else 0)


def _resolved(configs: list[Path], overrides: list[str]) -> Resolved:
    arguments = [part for path in configs for part in ("--config", str(path))]
    arguments += [part for text in overrides for part in ("--set", text)]
    return Resolved.from_json(ask_module("trainer", ["resolve", "--json", *arguments]))


def _as_json(found: Difference) -> LockDifference:
    return LockDifference(
        kind=found.kind, held=found.is_held, field=found.field, locked=found.before, found=found.after
    )


def _difference_lines(found: list[Difference], lock: Path) -> list[Line]:
    held = sum(difference.is_held for difference in found)
    if not found:
        return [Line(f"no difference from {lock}", "green")]
    lines = [
        Line(f"{held} difference(s) that {lock} forbids", "bold red")
        if held
        else Line(f"nothing that {lock} forbids; what differs is free", "green")
    ]
    for kind in dict.fromkeys(difference.kind for difference in found):
        of_kind = [difference for difference in found if difference.kind == kind]
        lines += [blank(), heading(kind if of_kind[0].is_held else f"{kind}, free to change")]
        lines += table([[one.field, _cell(one.before), "->", _cell(one.after)] for one in of_kind])
    return lines


def _cell(value: object) -> str:
    return "absent" if value is None else str(value)
