"""Commands that read write nothing, and need to write nothing: the tree stays as it is, also where it cannot change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ledger
from ledger.cli.lazy import COMMANDS
from ledger.records.layout import LOG
from tests.support.trees import snapshot

Run = Callable[[str], Path]

WRITING = {"prepare", "train", "evaluate", "pilot", "freeze", "waive", "seal"}
"""Commands that are there to write."""

READING: dict[str, list[str]] = {
    "summarize": ["summarize", "RUN"],
    "reconcile": ["reconcile", "RUN", "--rehash"],
    "compare": ["reconcile", "RUN", "--control", "RUN"],
    "verify": ["verify", "RUN"],
    "list": ["list", "RUN"],
    "junit": ["reconcile", "RUN", "--junit"],
    "data": ["data", "show", "RUN"],
    "watch": ["watch", "RUN", "--once"],
    "markdown": ["report", "RUN", "--markdown"],
    "diff": ["diff", "RUN", "RUN"],
    "repair": ["repair", "RUN"],
    "explain": ["explain", "LG306"],
    "schema": ["schema", "ledger.run"],
}
"""The others as they are called here; the doctor tries a folder by writing and removes what it wrote."""

CALL = """
import json, sys
from ledger.cli import main
codes = {}
for name, arguments in json.loads(sys.argv[1]).items():
    codes[name] = main(arguments)
    print(f"\\n{name} is done", flush=True)
sys.stderr.write(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def tree(healthy_run: Run) -> Iterator[Path]:
    """Return a folder of three runs: one that passes, one that was killed, one whose log is torn. All may enter it."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-reading-"))
    for name in ("plain", "interrupted"):
        shutil.copytree(healthy_run(name), folder / name)
    shutil.copytree(healthy_run("interrupted"), folder / "torn")
    with (folder / "torn" / LOG).open("ab") as file:
        file.write(b'{"event":"tra')
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def expected(tree: Path) -> dict[str, int]:
    """Return the exit codes where everything may be written."""
    return call(tree)


def call(tree: Path, *wrapper: str) -> dict[str, int]:
    """Call every reading command on every run, in one process, and return the exit codes."""
    arguments = {
        f"{name} {run}": [str(tree / run) if word == "RUN" else word for word in words]
        for name, words in READING.items()
        for run in ("plain", "interrupted", "torn")
    }
    done = subprocess.run(
        [*wrapper, sys.executable, "-B", "-c", CALL, json.dumps(arguments)],
        env=os.environ | {"PYTHONPATH": str(Path(ledger.__file__).parents[1])},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    codes: dict[str, int] = json.loads(done.stderr.splitlines()[-1])
    return codes


def test_every_command_reads_or_is_there_to_write():
    assert set(COMMANDS) - WRITING - {"doctor"} == {words[0] for words in READING.values()}


def test_the_tree_is_the_same_afterwards(tree: Path):
    before = snapshot(tree)
    codes = call(tree)
    assert snapshot(tree) == before
    assert (codes["reconcile plain"], codes["reconcile torn"], codes["repair torn"]) == (0, 3, 3)
    assert set(codes.values()) <= {0, 3}


def test_a_tree_without_the_right_to_write_gives_the_same_answers(tree: Path, expected: dict[str, int]):
    """As another user where this is root, for whom rights do not count."""
    wrapper: list[str] = []
    if os.geteuid() == 0:
        wrapper = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        if not _works([*wrapper, sys.executable, "-B", "-c", "import ledger.cli"]):
            pytest.skip("needs setpriv, and a Python and a checkout that every user may read")
    for path in [tree, *tree.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        before = snapshot(tree)
        assert call(tree, *wrapper) == expected
        assert snapshot(tree) == before
    finally:
        for path in [tree, *tree.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_read_only_file_system_gives_the_same_answers(tree: Path, expected: dict[str, int]):
    script = f'mount --bind {tree} {tree} && mount -o remount,bind,ro {tree} && ! touch {tree}/x && exec "$@"'
    wrapper = ["unshare", "--mount", "sh", "-c", script, "sh"]
    if not _works([*wrapper, "true"]):
        pytest.skip("needs unshare and the right to mount")
    assert call(tree, *wrapper) == expected


def _works(command: list[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
