"""`ledger watch RUN`: how a run goes, while it goes."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ledger.audit.following import RunFollower, RunView
from ledger.audit.subject import find_run
from ledger.cli.options import AsJson
from ledger.cli.output import EXIT_CODES, NARROWEST, print_json, print_lines, survive_encoding
from ledger.errors import EvidenceMissingError, UsageError
from ledger.pilot.folder import find_stages, is_pilot
from ledger.report.harmless import harmless
from ledger.report.lines import Line
from ledger.report.watching import view_line, view_lines

__all__ = ["command"]

ON_A_TERMINAL: Final = 1.0
ELSEWHERE: Final = 10.0
"""Seconds between looks."""
SHORTEST: Final = 0.05
LONGEST: Final = 86_400.0
SHORTEST_SCREEN: Final = 24
"""Lines."""

Show = Callable[[RunView], None]


def command(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN|PILOT", help="The folder of a run, or of a pilot: the run of its stage."),
    ],
    *,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval",
            metavar="SECONDS",
            help="Time between looks; 1 on a terminal, 10 elsewhere when omitted.",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show how it stands now, and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a run: progress, loss, rate, time left, skips, the last checkpoint, findings so far. Reads only.

    Ends by itself when the session has ended or its process is gone, and exits with 0 if it ended completed without
    an error found, 1 if it ended failed or an error was found, 3 if it ended short of its target, crashed, or (with
    --once) still goes on. Findings are those of form and counters alone; `ledger reconcile` checks the rest.
    """
    if interval is not None and not (math.isfinite(interval) and SHORTEST <= interval <= LONGEST):
        raise UsageError(f"--interval {interval:g} is out of range", expected=f"{SHORTEST:g} to {LONGEST:g}")
    console = Console()
    is_shown = console.is_terminal and not console.is_dumb_terminal and not as_json and not once
    pause = interval or (ON_A_TERMINAL if is_shown else ELSEWHERE)
    follower = RunFollower(find_run(_run_of_pilot(run)))
    with _screen(console) if is_shown else _lines(console, as_json=as_json, once=once) as show:
        view = follow(follower, show, pause=0.0 if once else pause)
    raise typer.Exit(EXIT_CODES[view.outcome])


def _run_of_pilot(path: str) -> str:
    """Return the run that a pilot is at, the first that is not finished or else the last; another path as it is."""
    if not path or not is_pilot(Path(path)):
        return path
    stages = [stage for stage in find_stages(Path(path)) if stage.runs]
    if not stages:
        raise EvidenceMissingError(
            "no stage of the pilot trains yet", path=path, advice="ledger pilot says what it does"
        )
    stage = next((one for one in stages if not one.is_finished), stages[-1])
    name, folder = list(stage.runs.items())[-1]
    of_pilot = f"and no decision about the pilot: see ledger report {path}"
    sys.stderr.write(harmless(f"{stage.name}: {name}, {of_pilot}") + "\n")
    return str(folder)


def follow(
    follower: RunFollower, show: Show, *, pause: float, sleep: Callable[[float], None] = time.sleep
) -> RunView:
    """Show a run again and again until it is over, or once it was read to its end where `pause` is 0."""
    while True:
        view = follower.poll()
        if follower.is_behind:
            if pause:
                show(view)
            continue
        show(view)
        if view.is_over or not pause:
            return view
        sleep(pause)


@contextmanager
def _screen(console: Console) -> Iterator[Show]:
    """Show each view in the place of the one before."""
    width = max(console.width, NARROWEST)

    def show(view: RunView) -> None:
        lines = view_lines(view, width=width, has_blocks=_has_blocks(console))
        live.update(Text("\n").join(_styled(line) for line in lines), refresh=True)

    before = signal.signal(signal.SIGTERM, _leave)  # so that the cursor comes back
    survive_encoding()
    try:
        # A size of its own, because rich shows nothing at all where a terminal has none.
        with Live(
            console=Console(width=width, height=max(console.height, SHORTEST_SCREEN)), auto_refresh=False
        ) as live:
            yield show
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(_number: int, _frame: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def _styled(line: Line) -> Text:
    return Text(harmless(line.text).replace("\n", r"\n"), style=line.style)


@contextmanager
def _lines(console: Console, *, as_json: bool, once: bool) -> Iterator[Show]:
    """Print each view: as JSON, in full where it is the only one, else in one line."""

    def show(view: RunView) -> None:
        if as_json:
            print_json(view.as_json())
        elif once:
            lines = view_lines(view, width=max(console.width, NARROWEST), has_blocks=_has_blocks(console))
            print_lines(_one_line(line) for line in lines)
        else:
            print_lines([_one_line(Line(view_line(view)))])

    yield show


def _one_line(line: Line) -> Line:
    return Line(line.text.replace("\n", r"\n"), line.style)


def _has_blocks(console: Console) -> bool:
    return console.encoding.startswith("utf")
