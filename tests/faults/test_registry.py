"""The registry of writing commands is complete: whatever writes is watched by a scenario, or says why it is not."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import data_prep
import ledger
import trainer
from ledger.cli import main
from ledger.cli.lazy import COMMANDS
from ledger.storage.filesystem import FileSystem
from tests.support.faults import CHANGING, Fault, Snapshot, diverted
from tests.support.faults_cases import CaseFileSystem
from tests.support.faults_scenarios import SCENARIO, SCENARIOS, finished_run

PACKAGES = (ledger, data_prep, trainer)
PRIMITIVES = {
    *(
        "create_file",
        "replace_file",
        "publish_folder",
        "sync_file",
        "sync_and_hash",
        "write_new_file",
        "write_document",
        "write_array",
    ),
    "write_safetensors",
    *("quarantine_tail", "ensure_folder", "claim_log", "remove_temporaries"),
}
"""Functions of ours that write."""
SEAM_METHODS = {
    *(
        "write",
        "truncate",
        "sync",
        "sync_data",
        "sync_directory",
        "rename",
        "link",
        "unlink",
        "mkdir",
        "rmdir",
    ),
}
AROUND_THE_SEAM = {
    *(
        "write_text",
        "write_bytes",
        "touch",
        "symlink_to",
        "hardlink_to",
        "rmtree",
        "copytree",
        "copyfile",
        "move",
    ),
    *("save_file", "makedirs", "copy2", "removedirs", "savez", "tofile"),
}
"""Calls that change files without passing through the seam."""
EXCUSED = {
    "ledger.recorder.opening:acquire_lock": "its removal of an empty folder needs a disk that folds case",
    "ledger.storage.mounts:is_case_insensitive": "its probe removes what it made, on a disk that folds case too",
    "data_prep.hub:_listing": "the cache of downloads, which is no record",
    "data_prep.hub:_remember": "the cache of downloads, which is no record",
    "ledger.pilot.processes:_started": "what a stage's processes print, for people",
    "trainer.profiling:switch": "a profiler's trace, for people",
    "ledger.storage.filesystem:write": "the seam",
    "ledger.storage.filesystem:sync_directory": "the seam",
}
"""Writing functions that no scenario reaches, with the reason."""
WRITING_COMMANDS = {
    "prepare": "dataset",
    "train": "training",
    "evaluate": "separate evaluation",
    "pilot": "pilot stage",
    "freeze": "lock",
    "reconcile": "verdict",
    "seal": "seal",
    "repair": "repair",
    "waive": "waiver",
    "report": "report",
    "doctor": "doctor",
}
"""Command → a scenario that stands for what it writes."""
READING_COMMANDS = {"list", "watch", "data", "summarize", "verify", "diff", "explain", "schema"}


@cache
def functions_that_write() -> set[str]:
    """Find every function that calls something that writes."""
    found = set()
    for package in PACKAGES:
        root = Path(package.__file__ or "").parent
        for path in sorted(root.rglob("*.py")):
            module = ".".join([package.__name__, *path.relative_to(root).with_suffix("").parts])
            for function in _functions(ast.parse(path.read_text())):
                if any(_writes(call) for call in _calls(function)):
                    found.add(f"{module}:{function.name}")
    return found


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _calls(function: ast.FunctionDef) -> Iterator[ast.Call]:
    inner = {id(node) for child in function.body for found in _functions(child) for node in ast.walk(found)}
    return (node for node in ast.walk(function) if isinstance(node, ast.Call) and id(node) not in inner)


def _writes(call: ast.Call) -> bool:
    target = call.func
    if isinstance(target, ast.Name):
        return target.id in PRIMITIVES | AROUND_THE_SEAM or (target.id == "open" and _opens_for_writing(call))
    if not isinstance(target, ast.Attribute):
        return False
    if target.attr in AROUND_THE_SEAM:
        return True
    holder = ast.unparse(target.value)
    through_seam = holder in {"fs", "self._fs", "job.fs", "OS"} and target.attr in SEAM_METHODS
    return through_seam or (target.attr == "open" and _opens_for_writing(call))


def _opens_for_writing(call: ast.Call) -> bool:
    texts = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    return any(isinstance(text, str) and set(text) & set("wax+") and len(text) <= 3 for text in texts)


class CallerFileSystem(CaseFileSystem):
    """Notes which of our functions stand behind every operation that changes the disk."""

    def __init__(self, *, root: Path, fault: Fault | None = None) -> None:
        super().__init__(fault, root=root)
        self.callers: set[str] = set()

    def perform(self, operation: str, path: Any, function: Any, *arguments: Any, **options: Any) -> Any:
        if operation in CHANGING or operation in ("open", "lock"):
            frame = sys._getframe(1)
            while frame is not None:
                module = frame.f_globals.get("__name__", "")
                if module.partition(".")[0] in {package.__name__ for package in PACKAGES}:
                    self.callers.add(f"{module}:{frame.f_code.co_name}")
                frame = frame.f_back  # type: ignore[assignment]
        return super().perform(operation, path, function, *arguments, **options)


@pytest.fixture(scope="module")
def callers(tmp_path_factory) -> set[str]:
    """Every function that a scenario, its set-up or its recovery writes through."""
    found: set[str] = set()
    for scenario in SCENARIOS:
        place = tmp_path_factory.mktemp(scenario.name.replace(" ", "-"))
        fs = CallerFileSystem(root=place)
        with diverted(fs):
            scenario.set_up(place)
            scenario.act(place, fs)
            scenario.recover(place, fs)
        found |= fs.callers
    broken = CallerFileSystem(root=place / "broken", fault=Fault("EIO", 30))
    with pytest.raises(Exception, match="EIO"):
        SCENARIO["checkpoint"].act(place / "broken", broken)
    return found | broken.callers


def test_every_function_that_writes_is_reached_by_a_scenario(callers):
    unknown = functions_that_write() - callers - EXCUSED.keys()
    assert not unknown, f"add a scenario that reaches {sorted(unknown)} to tests/support/faults_scenarios.py"


def test_no_excuse_is_out_of_date():
    assert EXCUSED.keys() <= functions_that_write() | {name for name in EXCUSED if "filesystem" in name}


def test_the_search_finds_what_is_known_to_write():
    assert {
        "ledger.recorder.commit:commit_checkpoint",
        "ledger.recorder.beginning:_write_what_belongs_to_it",
        "ledger.storage.atomic:replace_file",
        "ledger.storage.lock:_write_holder",
        "data_prep.workspace:open_workspace",
        "data_prep.pipeline:prepare",
        "trainer.checkpoint:_write",
        "ledger.storage.tensor_files:write_safetensors",
    } <= functions_that_write()


def test_every_command_is_known_as_writing_or_reading():
    assert set(COMMANDS) <= WRITING_COMMANDS.keys() | READING_COMMANDS, "say what a new command writes"
    assert set(WRITING_COMMANDS.values()) <= SCENARIO.keys()


class Unwritable(FileSystem):
    """Refuses whatever would change the disk."""

    def perform(self, operation: str, path: Any, function: Any, *arguments: Any, **options: Any) -> Any:
        creates = operation == "open" and arguments[1] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR)
        assert operation not in CHANGING, f"a reading command asked to {operation} {path}"
        assert not creates, f"a reading command opened {path} for writing"
        return super().perform(operation, path, function, *arguments, **options)


@pytest.mark.parametrize(
    "arguments",
    [
        ["summarize", "RUN"],
        ["reconcile", "RUN"],
        ["reconcile", "RUN", "--rehash", "--json"],
        ["verify", "RUN"],
        ["diff", "RUN", "RUN"],
        ["report", "RUN", "--markdown"],
        ["watch", "RUN", "--once"],
        ["explain", "LG101"],
        ["schema"],
    ],
    ids=" ".join,
)
def test_reading_commands_write_nothing(arguments, tmp_path):
    finished_run(tmp_path)
    before = Snapshot.of(tmp_path)
    with diverted(Unwritable()):
        code = main([str(tmp_path / "run") if part == "RUN" else part for part in arguments])
    assert code in (0, 3)
    assert Snapshot.of(tmp_path) == before
