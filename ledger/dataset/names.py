"""File names that a manifest may list: plain components of a path that every file system tells apart."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ledger.errors import InvalidDocumentError, UnsafeError
from ledger.storage.filesystem import StrPath

__all__ = ["validate_file_name", "validate_unique_names"]

_SAFE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MAX_NAME_BYTES: Final = 255
_ESCAPING: Final = re.compile(r"[/\\:]|[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def validate_file_name(name: str, *, path: StrPath, place: str) -> None:
    """Insist that a file name from a manifest is one plain component of a path.

    Raises:
        UnsafeError: following it could leave the folder, or it hides characters.
        InvalidDocumentError: it is harmless but not a name that datasets use.
    """
    if name in {".", ".."} or _ESCAPING.search(name):
        problem = f"the file name {name[:200]!r} could lead out of the dataset"
        raise UnsafeError(problem, path=path, place=place, expected="a plain file name")
    if len(name.encode(errors="surrogatepass")) > _MAX_NAME_BYTES:
        problem = f"the file name {name[:40]!r}… is longer than {_MAX_NAME_BYTES} bytes"
        raise InvalidDocumentError(problem, path=path, place=place, expected="a plain file name")
    if not _SAFE.fullmatch(name):
        expected = "letters, digits, `_`, `.` and `-`, with no `.` or `-` in front"
        raise InvalidDocumentError(
            f"the file name {name!r} is not allowed", path=path, place=place, expected=expected
        )


def validate_unique_names(names: Iterable[str], *, path: StrPath) -> None:
    """Insist that no two names are equal where a file system ignores case.

    Raises:
        InvalidDocumentError: two are.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.casefold())
        if other is not None:
            problem = (
                f"the files {other!r} and {name!r} are listed with names that some systems do not tell apart"
            )
            raise InvalidDocumentError(problem, path=path, expected="every file once")
        seen[name.casefold()] = name
