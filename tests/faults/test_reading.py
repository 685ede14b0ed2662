"""Whatever the system refuses a reading command to read, it says so once and judges nothing: never a wrong verdict."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.cli import main
from ledger.storage.filesystem import FileSystem
from tests.ledger.audit.reading import on_dataset
from tests.support.faults import Snapshot, diverted
from tests.support.faults_tally import TALLY
from tests.support.thorough import IS_THOROUGH

READING: Final[dict[str, list[str]]] = {
    "summarize": ["summarize", "RUN"],
    "reconcile": ["reconcile", "RUN"],
    "reconcile, everything": ["reconcile", "RUN", "--rehash", "--control", "CONTROL", "--data", "DATA"],
    "verify a run": ["verify", "RUN", "--json"],
    "verify a dataset": ["verify", "DATA"],
    "verify a checkpoint": ["verify", "CHECKPOINT"],
    "diff": ["diff", "RUN", "RUN"],
    "data show": ["data", "show", "DATA", "--run", "RUN"],
    "report": ["report", "RUN", "--markdown"],
    "watch": ["watch", "RUN", "--once"],
    "repair, dry": ["repair", "RUN"],
}
"""Every reading command that opens files, as it is called here."""
ERRORS: Final = {
    errno.EIO: frozenset(
        "open close read readv pread stat fstat list lock".split(),
    ),
    errno.EMFILE: frozenset({"open", "list"}),
    errno.EACCES: frozenset({"open", "list", "stat"}),
}
"""Which operations answer with which error."""
STORAGE: Final = 4
NOT_TO_BE_SEEN: Final = ("stat metadata.json", errno.EACCES)
"""A dataset that only the recipe names may lie on another machine's path; then nothing is said of it."""


class Refusing(FileSystem):
    """The real file system, on which one operation fails with one error."""

    def __init__(self, *, at: int = -1, number: int = 0) -> None:
        self.asked: list[str] = []
        self.struck: str | None = None
        self._at, self._number = at, number

    def perform(self, operation: str, path: Any, function: Any, *arguments: Any, **options: Any) -> Any:
        """Do it, or refuse it."""
        self.asked.append(f"{operation} {Path(path).name}")
        if len(self.asked) - 1 != self._at or operation not in ERRORS[self._number]:
            return super().perform(operation, path, function, *arguments, **options)
        self.struck = self.asked[-1]
        if operation == "close":
            function(*arguments)  # a descriptor is gone whatever close reports
        raise OSError(self._number, os.strerror(self._number))


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Two runs that pass, each beside the dataset that it read."""
    place = tmp_path_factory.mktemp("reading")
    on_dataset(place / "run")
    on_dataset(place / "control")
    return place


def call(name: str, place: Path, fs: FileSystem) -> int:
    """Run one command over a file system and return its exit code."""
    checkpoint = min((place / "run" / "checkpoints").iterdir()).name
    paths = {
        "RUN": "run",
        "CONTROL": "control",
        "DATA": "run-data",
        "CHECKPOINT": f"run/checkpoints/{checkpoint}",
    }
    with diverted(fs):
        return main([str(place / paths[word]) if word in paths else word for word in READING[name]])


def places(asked: list[str]) -> list[int]:
    """Return where each kind of operation on each file is asked for the first and the last time."""
    first = {label: at for at, label in reversed(list(enumerate(asked)))}
    last = {label: at for at, label in enumerate(asked)}
    return sorted({*first.values(), *last.values()})


def refusals(
    name: str, place: Path, capsys: Any, *, numbers: Iterable[int] = ERRORS, every: int = 1, first: int = 0
) -> Iterator[str]:
    """Refuse every so many of a command's operations, and yield what is wrong with its answers."""
    counted = Refusing()
    assert call(name, place, counted) == 0
    capsys.readouterr()
    before = Snapshot.of(place)
    for at in places(counted.asked)[first::every]:
        for number in numbers:
            fs = Refusing(at=at, number=number)
            code = call(name, place, fs)
            said = capsys.readouterr()
            if fs.struck is None:
                continue
            if (fs.struck, number) == NOT_TO_BE_SEEN and ", or not for this user to see" in said.out:
                continue
            wrong = [] if code == STORAGE else [f"exit code {code}"]
            wrong += [] if said.out == "" else [f"said {said.out[:200]!r}"]
            wrong += [] if _is_one_error(said.err, number) else [f"complained {said.err!r}"]
            problems = [f"{name}: {errno.errorcode[number]} at {fs.struck} ({at}): {', '.join(wrong)}"]
            TALLY.add(name, errno.errorcode[number], problems=problems if wrong else [])
            yield from problems if wrong else []
    assert Snapshot.of(place) == before


def _is_one_error(text: str, number: int) -> bool:
    return text.startswith("error: ") and text.count("\n") == 1 and errno.errorcode[number] in text


@pytest.mark.parametrize("name", READING)
def test_a_read_that_is_refused_somewhere_is_one_clear_error(name, place, capsys):
    first = list(READING).index(name)
    assert not list(refusals(name, place, capsys, numbers=[errno.EIO], every=67, first=first))


@pytest.mark.slow
@pytest.mark.parametrize("name", READING)
def test_a_read_that_is_refused_anywhere_is_one_clear_error(name, place, capsys):
    problems = list(refusals(name, place, capsys, every=1 if IS_THOROUGH else 4))
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:40])


@pytest.mark.slow
def test_a_doctor_that_is_refused_anything_calls_nothing_safe(tmp_path, capsys):
    counted = Refusing()
    with diverted(counted):
        assert main(["doctor", str(tmp_path)]) == 0
    rename = [at for at, asked in enumerate(counted.asked) if asked.startswith(("rename", "write"))]
    for at in [at for at in range(len(counted.asked)) if at < 40 or at > rename[-1] - 30]:
        fs = Refusing(at=at, number=errno.EIO)
        with diverted(fs):
            code = main(["doctor", str(tmp_path)])
        said = capsys.readouterr()
        assert code in ((0,) if fs.struck is None else (4, 7)), (fs.struck, said)
        assert "Traceback" not in said.err
        for left in tmp_path.iterdir():
            assert left.name.startswith(".doctor.tmp-")
