"""`ledger summarize` and `reconcile` of long logs against `orjson.loads` over their lines; the command's start."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from _measure import Contender, measure

from ledger.audit import reconcile, summarize
from ledger.records.layout import LOG
from tests.support.long_log import write_long_run
from tests.support.toy import ToySettings, run_toy

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]

ROOT = Path(__file__).resolve().parents[2]
PEAK = (
    "import resource, sys; from ledger.audit import summarize; summarize(sys.argv[1]); "
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)


def decode(run: Path) -> None:
    """Decode every line and keep nothing."""
    with (run / LOG).open("rb") as log:
        for line in log:
            orjson.loads(line)


def measure_logs(folder: Path, *, events: int, rounds: int) -> None:
    """Measure a long log, one of ten times fewer events, and one of a thousand sessions."""
    runs = {"one": (events, 1), "tenth": (events // 10, 1), "sessions": (events, 1_000)}
    for name, (count, sessions) in runs.items():
        write_long_run(folder / name, events=count, sessions=sessions)
    one, tenth, many = (folder / name for name in runs)
    size = (one / LOG).stat().st_size / 1e6
    print(f"{events:,} events, {size:,.0f} MB\n")
    contenders = {} if orjson is None else {"orjson.loads": Contender(lambda: decode(one), events)}
    contenders |= {
        "summarize": Contender(lambda: summarize(one), events),
        "a tenth": Contender(lambda: summarize(tenth), events // 10),
        "sessions": Contender(lambda: summarize(many), events),
        "reconcile": Contender(lambda: reconcile(many), events),
    }
    base = "summarize" if orjson is None else "orjson.loads"
    rates = measure(contenders, rounds=rounds, unit="events/s", base=base)
    if orjson is None:
        print("orjson is not installed: the comparison with it is skipped")
    else:
        print(f"\ntarget 2.2 times the seconds of orjson: {1 / rates['summarize']:.2f}")
    print(f"target 1.5 times those of summarize for reconcile: {rates['sessions'] / rates['reconcile']:.2f}")
    print(
        f"ten times the events, seconds per event: {rates['a tenth'] / rates['summarize']:.2f} times as many"
    )
    for name, run in (("all events", one), ("a tenth", tenth)):
        print(f"memory of summarize, {name}: {peak_megabytes(run):.0f} MB (target 150)")


def peak_megabytes(run: Path) -> float:
    """Return the greatest resident size of a process that summarizes a run."""
    command = [sys.executable, "-P", "-c", PEAK, str(run)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def measure_start(folder: Path, *, rounds: int) -> None:
    """Measure how long the command takes to say little."""
    run_toy(folder / "small", ToySettings())

    def start(*arguments: str) -> Contender:
        command = [sys.executable, "-P", *arguments]
        return Contender(lambda: subprocess.run(command, cwd=ROOT, capture_output=True, check=False), 1)

    print()
    rates = measure(
        {
            "typer and rich": start("-c", "import rich.console, rich.table, typer"),
            "help": start("-m", "ledger", "--help"),
            "summarize": start("-m", "ledger", "summarize", str(folder / "small")),
        },
        rounds=rounds,
        unit="starts/s",
        base="typer and rich",
    )
    for name in ("help", "summarize"):
        print(f"target 1.5 times the seconds of the imports: {name} {1 / rates[name]:.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="of the long log")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        measure_logs(Path(name), events=options.events, rounds=options.rounds)
        measure_start(Path(name), rounds=3 * options.rounds)


if __name__ == "__main__":
    main()
