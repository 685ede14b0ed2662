"""The errors of the ledger: facts are attributes, the message is built from them, the exit code sits on the class.

    LedgerError                     1
    ├── UsageError                  2   the command line or a call is wrong
    │   └── ConfigError             2   a configuration, recipe lock or argument is malformed
    ├── InvalidDocumentError        1   a record is malformed (not what its schema says)
    ├── VerificationError           1   bytes do not match the digest or size that was recorded for them
    ├── RefusedError                1   two things that must agree differ (a resume with another recipe)
    ├── EvidenceMissingError        3   cannot judge or go on: something that should exist does not
    ├── StorageError                4   the system could not read or write
    ├── LockedError                 5   another writer holds the run
    ├── NewerVersionError           6   written by a newer version of the ledger
    └── UnsafeError                 7   refused because following it could do harm

An exception means "cannot go on". What an audit finds is not an exception but a `Finding`.
"""

from __future__ import annotations

import os

__all__ = [
    "ConfigError",
    "EvidenceMissingError",
    "InvalidDocumentError",
    "LedgerError",
    "LockedError",
    "NewerVersionError",
    "RefusedError",
    "StorageError",
    "UnsafeError",
    "UsageError",
    "VerificationError",
]


class LedgerError(Exception):
    """Base of all errors; `str()` is one clear sentence: where, what is wrong, what was expected, what to do."""

    exit_code: int = 1

    def __init__(
        self,
        problem: str,
        *,
        path: str | os.PathLike[str] | None = None,
        place: str | None = None,
        expected: str | None = None,
        advice: str | None = None,
    ) -> None:
        self.problem = problem
        self.path = None if path is None else os.fspath(path)
        self.place = place
        self.expected = expected
        self.advice = advice
        super().__init__(problem)

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.path, self.place) if part)
        text = f"{where}: {self.problem}" if where else self.problem
        if self.expected:
            text += f"; expected {self.expected}"
        if self.advice:
            text += f" ({self.advice})"
        return text


class UsageError(LedgerError):
    """The command line, or a call from Python, asks for something that makes no sense."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration, a recipe lock or an argument is malformed."""


class InvalidDocumentError(LedgerError):
    """A record is not what its schema says."""


class VerificationError(LedgerError):
    """Bytes do not match the digest, size or position that was recorded for them."""


class RefusedError(LedgerError):
    """Two things that must agree differ, so going on would not be the same experiment."""


class EvidenceMissingError(LedgerError):
    """Something that should exist does not, so nothing can be said or continued."""

    exit_code = 3


class StorageError(LedgerError):
    """The system refused to read, write, sync, lock or rename."""

    exit_code = 4


class LockedError(LedgerError):
    """Another writer holds the run."""

    exit_code = 5


class NewerVersionError(LedgerError):
    """The document was written by a newer version of the ledger and is not half-read."""

    exit_code = 6


class UnsafeError(LedgerError):
    """Refused because following it could do harm: a path that leaves its folder, a pickle, a device file."""

    exit_code = 7
