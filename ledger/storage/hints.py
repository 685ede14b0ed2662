"""What damaged or foreign bytes look like, in words that tell a person what happened to the file."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["describe_foreign_bytes"]

_BEGINNINGS: Final = (
    (b"\x1f\x8b", "this looks like a gzip file: decompress it first"),
    (b"PK\x03\x04", "this looks like a zip archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "this looks like a zstd file: decompress it first"),
    (b"\xef\xbb\xbf", "it starts with a byte order mark: save it as UTF-8 without BOM"),
    (b"\xff\xfe", "this looks like UTF-16 or UTF-32: save it as UTF-8"),
    (b"\xfe\xff", "this looks like UTF-16: save it as UTF-8"),
    (b"\x00\x00\xfe\xff", "this looks like UTF-32: save it as UTF-8"),
    (b"version https://git-lfs", "this is a git-LFS pointer, not the file: run `git lfs pull`"),
    (b"<<<<<<< ", "these are merge-conflict markers: restore one side whole"),
    (b"<", "this looks like HTML or XML, perhaps an error or login page saved in the file's place"),
    (b"\x80\x04", "this looks like a Python pickle, which is never read"),
    (b"\x80\x05", "this looks like a Python pickle, which is never read"),
    (b"---\n", "this looks like YAML"),
)
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/\r\n]{64,}={0,2}\s*")


def describe_foreign_bytes(data: bytes) -> str | None:
    """Say what the beginning of a file looks like if it is no JSON, or `None` where nothing is recognised."""
    for beginning, description in _BEGINNINGS:
        if data.startswith(beginning):
            return description
    if b"\x00" in data[:4] and data.strip(b"\x00"):
        return "this looks like UTF-16 or UTF-32: save it as UTF-8"
    if b"\n<<<<<<< " in data or b"\n>>>>>>> " in data:
        return "it holds merge-conflict markers: restore one side whole"
    if _BASE64.fullmatch(data[:4096]):
        return "this looks like base64: decode it first"
    return None
