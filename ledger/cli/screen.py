"""What commands print with: plain where nobody looks, and harmless whatever the records hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ledger.errors import LedgerError, StorageError
from ledger.report.harmless import harmless, one_line

__all__ = ["PROGRAM", "guard", "harmless", "print_error", "program_name"]

PROGRAM: Final = "LEDGER_PROGRAM"
"""Environment variable: the name under which the command line that hands a command over was called."""


def print_error(error: LedgerError) -> None:
    """Print one clear line to standard error, in any encoding, and a line for each note."""
    lines = [f"error: {error}", *getattr(error, "__notes__", ())]
    text = "".join(f"{one_line(line)}\n" for line in lines)
    encoding = sys.stderr.encoding or "ascii"
    with suppress(OSError):  # where nobody can be told, the exit code is left
        sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()


def program_name(default: str) -> str:
    """Return what a command line calls itself: the name that it was handed over under, or its own."""
    return os.environ.pop(PROGRAM, default)


def guard(command_line: Callable[[], object]) -> int:
    """Run a command line to its end and return its exit code; every error becomes one line on standard error.

    What was printed counts only once it is out: an output that cannot be written is an error as well.
    """
    _open_standard_streams()
    try:
        code = _exit_code(command_line)
        sys.stdout.flush()
    except LedgerError as error:
        print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        _forget_output()
        failure = _storage_error(error)
        print_error(failure)
        return failure.exit_code
    return code


def _exit_code(command_line: Callable[[], object]) -> int:
    try:
        command_line()
    except SystemExit as end:  # how a command line says that it is done
        return end.code if isinstance(end.code, int) else 0
    return 0


def _storage_error(error: OSError) -> StorageError:
    reason = error.strerror or type(error).__name__
    if error.filename is not None:
        return StorageError(f"the system refused: {reason}", path=os.fsdecode(error.filename))
    return StorageError(f"cannot be written: {reason}", path="standard output", advice="print it elsewhere")


def _open_standard_streams() -> None:
    """Let closed streams lead nowhere, so that printing is harmless and no record's file takes their number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _forget_output() -> None:
    """Let what is still buffered go nowhere, or the interpreter would complain about it once more at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
