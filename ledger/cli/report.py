"""`ledger report RUN|PILOT`: one page that says everything, or the short of it in Markdown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from ledger import __version__
from ledger.audit.charts import RunCharts, chart_run
from ledger.audit.subject import require_folder
from ledger.cli.options import DataPath
from ledger.cli.output import EXIT_CODES, print_text, survive_encoding, warn_about_link
from ledger.errors import LedgerError, StorageError, UsageError
from ledger.locks import budget_of_run
from ledger.pilot.budget import DEFAULT_PREEMPTIONS_PER_DAY
from ledger.pilot.folder import FoundStage, find_stages, is_pilot
from ledger.pilot.kinds import STAGES
from ledger.pilot.metrics import is_metric, metric_named
from ledger.pilot.recheck import PILOT_RECORD
from ledger.pilot.rehearsal import pilot_budget
from ledger.records.locks import Budget
from ledger.records.parts import LogPosition
from ledger.records.pilot import Gate, PilotRecord
from ledger.report.files import require_place, write_report
from ledger.report.markdown import pilot_markdown, run_markdown
from ledger.report.pilot_page import PILOT_BUCKETS, PilotReport, RunInStage, StageReport, Standing, pilot_page
from ledger.report.run_page import run_page
from ledger.storage.documents import read_document
from ledger.storage.filesystem import OS

__all__ = ["command"]

DEFAULT_OUTPUT: Final = "report.html"
_CHANGED: Final = "Its log is not the one that the stage's record names: it went on, or was replaced, since."


def command(
    run: Annotated[str, typer.Argument(metavar="RUN|PILOT", help="The folder of a run or of a pilot.")],
    *,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help=f"Where the page goes; {DEFAULT_OUTPUT} when omitted."
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the short of it in Markdown and write no file.")
    ] = False,
    rehash: Annotated[
        bool, typer.Option("--rehash", help="Read every byte of checkpoints and dataset.")
    ] = False,
    data: DataPath = None,
) -> None:
    """Write a report of a run or a pilot as one HTML file that needs nothing else, or print it in Markdown.

    Everything in it comes from records; the run is not touched. Exits as `ledger reconcile` does: 0 when the verdict
    is passed, 1 when it is failed, 3 when it is incomplete; the report is written in each of these cases.
    """
    if markdown and output is not None:
        raise UsageError("--markdown prints and writes no file", expected="--markdown or -o, not both")
    folder = require_folder(run, what="a run or a pilot")
    target = output if output is not None else DEFAULT_OUTPUT
    if not markdown:
        require_place(target)  # before the log is read
    name = folder.resolve().name
    if is_pilot(folder):
        pilot = _pilot(folder, name=name, rehash=rehash, data=data)
        verdict, made = pilot.verdict, pilot_markdown(pilot) if markdown else pilot_page(pilot)
    else:
        charts = chart_run(folder, rehash=rehash, data=data)
        verdict = charts.verdict.verdict
        made = _run_report(folder, charts, name=name, markdown=markdown)
    warn_about_link(Path(run))
    if markdown:
        survive_encoding()
        print_text(made)
    else:
        written = write_report(target, made)
        sys.stderr.write(f"wrote {ascii(str(written))[1:-1]}, {len(made.encode()):,} bytes\n")
        print_text(f"{verdict}\n")
    raise typer.Exit(EXIT_CODES[verdict])


def _run_report(folder: Path, charts: RunCharts, *, name: str, markdown: bool) -> str:
    show = run_markdown if markdown else run_page
    return show(charts, name=name, budget=budget_of_run(folder))


def _pilot(folder: Path, *, name: str, rehash: bool, data: str | None) -> PilotReport:
    record = read_document(folder / PILOT_RECORD, PilotRecord) if OS.exists(folder / PILOT_RECORD) else None
    stages = find_stages(folder)
    listed = {} if record is None else {stage.folder: stage.fingerprint for stage in record.stages}
    if record is not None:  # stages of other settings, from before, are not this pilot's
        order = {stage.folder: number for number, stage in enumerate(record.stages)}
        stages = sorted((one for one in stages if one.name in order), key=lambda one: order[one.name])
    return PilotReport(
        name=name if record is None else record.name,
        stages=[_stage(found, listed=listed.get(found.name), rehash=rehash, data=data) for found in stages],
        tool_version=__version__,
        facts=[] if record is None else _facts(record),
        budget=None if record is None else _budget(folder, record, data=data),
        left_out=[] if record is None else _absent({stage.stage for stage in record.stages}),
        not_run=_not_run(record, {found.name for found in stages}),
    )


def _budget(folder: Path, record: PilotRecord, *, data: str | None) -> Budget | None:
    place = None if data is None else Path(data)
    return pilot_budget(folder, record, per_day=DEFAULT_PREEMPTIONS_PER_DAY, data=place)


def _not_run(record: PilotRecord | None, found: set[str]) -> list[str]:
    """Return the stages that did not finish, and those whose folder is gone: what it said is no evidence any more."""
    if record is None:
        return _absent({name.partition("-")[0] for name in found})
    return [stage.stage for stage in record.stages if stage.passed is None or stage.folder not in found]


def _absent(there: set[str]) -> list[str]:
    return [name for name in STAGES if name not in there]


def _facts(record: PilotRecord) -> list[tuple[str, str]]:
    return [
        ("recipe", record.identity_sha256),
        ("target", f"{record.target_step:,} updates, {record.planned_tokens:,} tokens"),
        ("train data", record.data.train),
        ("held-out data", record.data.validation or "none"),
    ]


def _stage(found: FoundStage, *, listed: str | None, rehash: bool, data: str | None) -> StageReport:
    heads = {} if found.record is None else {run.path: run.log_head for run in found.record.runs}
    runs = [
        _run(path, folder, head=heads.get(path), rehash=rehash, data=data)
        for path, folder in found.runs.items()
    ]
    standing, gates, problem = _standing(found, listed=listed)
    return StageReport(
        name=found.name.partition("-")[0] if found.record is None else found.record.stage,
        standing=standing,
        gates=gates,
        runs=runs,
        problem=problem,
        advice={gate.metric: metric_named(gate.metric).advice for gate in gates if is_metric(gate.metric)},
        warnings=[] if found.record is None else list(found.record.warnings),
    )


def _standing(found: FoundStage, *, listed: str | None) -> tuple[Standing, list[Gate], str | None]:
    """Return how a stage stands; `listed` is the fingerprint by which the pilot's record names it."""
    record = found.record
    if record is not None and listed not in (None, record.fingerprint):
        return "unreadable", record.gates, "Its record is that of another stage than the pilot names."
    if record is not None and record.passed != all(gate.passed for gate in record.gates):
        return "unreadable", record.gates, "Its record contradicts its gates: it was edited."
    if record is not None:
        return ("passed" if record.passed else "failed"), record.gates, None
    if found.is_finished:
        return "unreadable", [], str(found.error)
    return "not finished", [], "There is no record of it: it did not finish."


def _run(path: str, folder: Path, *, head: LogPosition | None, rehash: bool, data: str | None) -> RunInStage:
    try:
        charts = chart_run(folder, rehash=rehash, data=data, buckets=PILOT_BUCKETS)
    except StorageError:
        raise
    except LedgerError as error:
        return RunInStage(path=path, charts=None, problem=str(error))
    changed = head is not None and charts.verdict.log_head != head
    return RunInStage(path=path, charts=charts, problem=_CHANGED if changed else None)
