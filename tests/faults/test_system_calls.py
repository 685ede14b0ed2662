"""Real system calls of real processes fail: through a preloaded shim, through strace, through limits of the system."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.faults_children import check_child
from tests.support.faults_server import CALLS, ROOT, Server
from tests.support.faults_tally import TALLY
from tests.support.thorough import IS_THOROUGH, share

SOURCE = Path(__file__).parent / "native" / "shim.c"
TOY = "tests.support.faults_child:toy"
ERRORS = (errno.EIO, errno.ENOSPC)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the shim with")
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"the shim does not build here: {built.stderr.splitlines()[:1]}")
    with Server(preloads=str(library)) as found:
        yield found


@pytest.fixture(scope="module")
def plain_server() -> Iterator[Server]:
    with Server() as found:
        yield found


@pytest.fixture(scope="module")
def counts(server, tmp_path_factory) -> dict[str, int]:
    """How often an undisturbed toy run makes each call."""
    place = tmp_path_factory.mktemp("counts")
    assert server.run(TOY, place=str(place), shim={"call": None, "nth": 0}, counts=True) == 0
    return {words[1]: int(words[2]) for words in server.acknowledged() if words[0] == "count"}


def strike(server: Server, place: Path, call: str, nth: int, **how) -> list[str]:
    """Let one call of a toy run fail or kill it, and judge what is left."""
    place.mkdir()
    code = server.run(TOY, place=str(place), shim={"call": call, "nth": nth, **how})
    expected = -signal.SIGKILL if how.get("mode") in ("kill", "tear") else 4
    problems = [] if code == expected else [f"{call} {nth} {how}: exit code {code}, not {expected}"]
    problems += check_child(place, server.acknowledged())
    mode = {"kill": "SIGKILL", "tear": "SIGKILL, torn"}.get(
        how.get("mode", ""), errno.errorcode.get(how["number"], "")
    )
    TALLY.add("a whole run, real calls", f"{call} {mode}", problems=problems)
    shutil.rmtree(place)
    return problems


def ways(call: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [{"number": number} for number in ERRORS]
    found.append({"number": 0, "mode": "kill"})
    if call == "write":
        found.append({"number": 0, "mode": "tear", "kept": 37})
    return found


def test_every_call_that_the_shim_knows_is_made(counts):
    assert all(counts[call] > 1 for call in CALLS if call != "ftruncate")
    assert counts["write"] > 20


@pytest.mark.parametrize("call", ["write", "fsync", "fdatasync", "rename", "close", "link"])
def test_a_failing_call_loses_nothing(call, counts, server, tmp_path):
    nth = counts[call] * 2 // 3
    for index, how in enumerate(ways(call)[:1] + ways(call)[-1:]):
        assert not strike(server, tmp_path / str(index), call, nth, **how)


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_no_failing_call_loses_anything(call, counts, server, tmp_path):
    problems = [
        problem
        for nth in range(counts[call])
        for how in (ways(call) if IS_THOROUGH else [ways(call)[nth % len(ways(call))]])
        for problem in strike(server, tmp_path / "case", call, nth, **how)
    ]
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:20])


def test_an_interrupted_write_is_completed(counts, server, tmp_path):
    for nth in (0, counts["write"] // 2, counts["write"] - 1):
        place = tmp_path / str(nth)
        place.mkdir()
        assert (
            server.run(TOY, place=str(place), shim={"call": "write", "nth": nth, "number": errno.EINTR}) == 0
        )
        assert not check_child(place, server.acknowledged())


def limited(server: Server, place: Path, file_bytes: int) -> list[str]:
    place.mkdir()
    code = server.run(TOY, place=str(place), file_bytes=file_bytes)
    problems = [] if code in (0, 4) else [f"at {file_bytes} bytes: exit code {code}"]
    problems += check_child(place, server.acknowledged())
    TALLY.add("a whole run, real calls", "RLIMIT_FSIZE", problems=problems)
    shutil.rmtree(place)
    return problems if code else [*problems, "0"]


@pytest.mark.parametrize("file_bytes", [0, 1, 700, 2_000, 3_111, 4_097])
def test_a_limit_on_the_size_of_files_is_an_error_and_loses_nothing(file_bytes, plain_server, tmp_path):
    assert not limited(plain_server, tmp_path / "case", file_bytes)


def test_a_limit_that_is_large_enough_changes_nothing(plain_server, tmp_path):
    assert limited(plain_server, tmp_path / "case", 1 << 20) == ["0"]


@pytest.mark.slow
def test_a_limit_on_the_size_of_files_at_many_bytes(plain_server, tmp_path):
    problems = [
        problem
        for file_bytes in share(range(2_400, 2_400 + 700), most=100)
        for problem in limited(plain_server, tmp_path / "case", file_bytes)
    ]
    assert not problems, "\n".join(problems[:20])


INJECTIONS = [
    ("fdatasync", "EIO", 1, "metrics.jsonl"),
    ("fdatasync", "ENOSPC", 3, "metrics.jsonl"),
    ("write", "ENOSPC", 4, "metrics.jsonl"),
    ("write", "EDQUOT", 2, "metrics.jsonl"),
    ("fsync", "EIO", 1, "recipes"),
    ("fsync", "EIO", 2, "checkpoints"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "injection",
    INJECTIONS,
    ids=lambda found: f"{found[0]} {found[1]} {found[3]}",
)
def test_a_call_that_the_tracer_makes_fail_loses_nothing(injection, tmp_path):
    call, error, nth, name = injection
    tracer = shutil.which("strace")
    if tracer is None:
        pytest.skip("there is no strace here")
    traced = [
        tracer,
        "-f",
        "-qq",
        "-o",
        os.devnull,
        "-P",
        str(tmp_path / "run" / name),
        "-e",
        f"trace={call}",
    ]
    command = [sys.executable, "-P", "-m", "tests.support.faults_child", str(tmp_path)]
    done = subprocess.run(
        [*traced, "-e", f"inject={call}:error={error}:when={nth}", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if "ptrace" in done.stderr.lower() and done.returncode == 1:
        pytest.skip("nothing may be traced here")
    assert done.returncode == 4, done.stderr
    problems = check_child(tmp_path, [])
    TALLY.add("a whole run, real calls", f"{call} {error}, strace", problems=problems)
    assert not problems
