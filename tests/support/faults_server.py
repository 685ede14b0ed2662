"""A process that forks a child for every call, so that hundreds of real processes cost one start of Python.

It reads one JSON object a line: `{"call": "module:function", "arguments": {…}}` forks and is answered with the child's
number, `{"wait": number}` with the child's end. What the child acknowledges goes through a pipe of its own. `Server`
is the other side.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

ROOT: Final = Path(__file__).parents[2]
ACKNOWLEDGEMENTS: Final = "FAULTS_ACKNOWLEDGEMENTS"
"""The environment variable that names the pipe's descriptor."""
CALLS: Final = (
    "open",
    "write",
    "fsync",
    "fdatasync",
    "rename",
    "close",
    "link",
    "unlink",
    "mkdir",
    "ftruncate",
)
"""The calls that the preloaded shim knows, in its order."""


class Server:
    """Starts children in a process of its own, one at a time."""

    def __init__(self, *, preloads: str = "", environment: Mapping[str, str] | None = None) -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        self._acknowledgements = reading
        self._child = 0
        names = {"PYTHONPATH": str(ROOT), ACKNOWLEDGEMENTS: str(writing), "OMP_NUM_THREADS": "1"}
        if preloads:
            names["LD_PRELOAD"] = preloads
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.support.faults_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[writing],
            env={**os.environ, **names, **(environment or {})},
            cwd="/",
        )
        os.close(writing)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()
        os.close(self._acknowledgements)

    def start(self, call: str, **arguments: Any) -> int:
        """Fork a child that makes a call; returns its number, which is its own until `wait`."""
        self._child = self._ask({"call": call, "arguments": arguments})
        return self._child

    def wait(self) -> int:
        """Wait for the child's end; returns its exit code, or the signal's number with a minus."""
        return self._ask({"wait": self._child})

    def run(self, call: str, **arguments: Any) -> int:
        """Start a child and wait for its end."""
        self.start(call, **arguments)
        return self.wait()

    def acknowledged(self) -> list[list[str]]:
        """Return what children acknowledged since the last time, a list of words each."""
        parts = []
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._acknowledgements, 1 << 16):
                parts.append(part)
        return [line.split() for line in b"".join(parts).decode().splitlines()]

    def _ask(self, request: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the server died"
        return int(line)


def acknowledge(*words: object) -> None:
    """Tell the test, beyond recall, that something is done."""
    line = " ".join(map(str, words)) + "\n"
    os.write(int(os.environ[ACKNOWLEDGEMENTS]), line.encode())


def arm_shim(
    folder: str, call: str | None, nth: int, *, number: int = 0, mode: str = "fail", kept: int = 0
) -> None:
    """Let the preloaded shim strike at the n-th call (from 0) below a folder; `None` only counts."""
    library = ctypes.CDLL(None)
    kind = ("fail", "kill", "tear").index(mode)
    chosen = -1 if call is None else CALLS.index(call)
    library.faults_arm(folder.encode(), chosen, ctypes.c_long(nth), number, kind, ctypes.c_size_t(kept))


def shim_counts() -> dict[str, int]:
    """Return how often each call was made since the shim was armed."""
    library = ctypes.CDLL(None)
    return {name: int(library.faults_count(index)) for index, name in enumerate(CALLS)}


def serve() -> None:
    """Answer requests until there are no more."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    for line in iter(requests.readline, b""):
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            continue
        module, _, name = request["call"].partition(":")
        function = getattr(importlib.import_module(module), name)
        child = os.fork()
        if child == 0:
            requests.close()
            os.close(answers)
            _be_child(function, request["arguments"])
        os.write(answers, f"{child}\n".encode())


def _be_child(function: Any, arguments: dict[str, Any]) -> None:
    """Make the call and end with what it returns, without unwinding the server."""
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = int(function(**arguments) or 0)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever it is, the child ends here
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
