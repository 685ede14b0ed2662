"""The same text and tokenizer through datatrove: the same ids one by one, the same counts, and how long each takes.

Both run as whole programs, imports and start of workers included, with two workers and documents in the order of the
source. datatrove may live in an environment of its own: DATATROVE_PYTHON names that environment's Python.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from ledger.dataset.manifest import open_dataset

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
CORPUS, TOKENIZER = SHARED / "linux-doc.parquet", SHARED / "gpt2-tokenizer.json"
PEER = Path(__file__).resolve().parent / "_datatrove_run.py"
WORKERS = 2
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of what programs started here leave behind, so that their time counts; on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(command: list[str]) -> tuple[float, float]:
    """Run a program; return its seconds by the clock and those of all its processes."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - begin
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stderr[-2_000:]}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used


def ours(source: Path, output: Path) -> list[str]:
    """Return the command that prepares: unshuffled, nothing held out, so that it is one stream to compare."""
    settings = [
        "source.kind=parquet",
        f"source.files=[{source}]",
        "tokenizer.kind=file",
        f"tokenizer.path={TOKENIZER}",
        "shuffle.buffer=1",
        "split.validation_fraction=0",
        f"workers={WORKERS}",
    ]
    (output.parent / "empty.yaml").write_text("deduplicate: false\n")
    sets = [part for setting in settings for part in ("--set", setting)]
    command = [
        sys.executable,
        "-P",
        "-m",
        "data_prep",
        "prepare",
        "--config",
        str(output.parent / "empty.yaml"),
    ]
    return [*command, *sets, "--output", str(output)]


def compare(prepared: Path, peer: Path) -> str | None:
    """Return how the two outputs differ; null where every id and every document end is the same."""
    split = open_dataset(prepared).split("train")
    ids, ends = split.read(0, count=split.tokens), split.document_ends()
    files = sorted((peer / "tokens").glob("*.ds"))
    theirs = np.concatenate([np.fromfile(file, dtype="<u2") for file in files])
    lengths = [np.diff(np.fromfile(f"{file}.index", dtype="<u8"), prepend=np.uint64(0)) for file in files]
    if ids.size != theirs.size or not np.array_equal(ids, theirs):
        return f"{ids.size} ids here, {theirs.size} there, and not the same ones"
    if not np.array_equal(ends, np.concatenate(lengths).cumsum(dtype=np.uint64)):
        return "the documents end elsewhere"
    print(f"the same {ids.size:,} ids and {ends.size:,} documents, one by one")
    return None


def cut(folder: Path) -> None:
    """Write the corpus as one file a worker: datatrove gives whole files to its tasks."""
    parquet = importlib.import_module("pyarrow.parquet")
    table = parquet.read_table(CORPUS)
    size = -(-table.num_rows // WORKERS)
    for number in range(WORKERS):
        parquet.write_table(table.slice(number * size, size), folder / f"{number}.parquet")


def main() -> int:
    """Measure, compare and print."""
    python = os.environ.get("DATATROVE_PYTHON", sys.executable)
    probe = subprocess.run([python, "-c", "import datatrove"], capture_output=True, check=False)
    if probe.returncode:
        print("skipped: datatrove is not installed here, and DATATROVE_PYTHON names no Python that has it")
        return 0
    if not CORPUS.is_file() or not TOKENIZER.is_file():
        print(f"skipped: {CORPUS} and {TOKENIZER} are not here")
        return 0
    adopt_orphans()
    walls, works = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (source := folder / "source").mkdir()
        cut(source)
        prepared, peer = folder / "data", folder / "trove"
        for number in range(int(os.environ.get("ROUNDS", "3")) + 1):
            shutil.rmtree(prepared, ignore_errors=True)
            shutil.rmtree(peer, ignore_errors=True)
            here = run(ours(source, prepared))
            there = run([python, str(PEER), str(source), str(TOKENIZER), str(peer), str(WORKERS)])
            if not number and (problem := compare(prepared, peer)):
                print(problem)
                return 1
            if number:
                walls.append(there[0] / here[0])
                works.append(there[1] / here[1])
                print(f"seconds (of all processes): data_prep {here[0]:.1f} ({here[1]:.1f}), ", end="")
                print(f"datatrove {there[0]:.1f} ({there[1]:.1f})", flush=True)
    for what, ratios in (("by the clock", walls), ("by processor time", works)):
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"target 3.5 of datatrove, {what}: {statistics.median(ratios):.2f} ({spread})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
