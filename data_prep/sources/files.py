"""Local input files: which ones are meant, what identifies them, and reading them line by line."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Final, NoReturn, cast

from data_prep.columnar import zstd_stream
from data_prep.sources.readings import BUFFER_BYTES, Reading, WatchedBytes
from ledger.errors import (
    ConfigError,
    EvidenceMissingError,
    InvalidDocumentError,
    StorageError,
    VerificationError,
)
from ledger.records.dataset import SourceFile
from ledger.storage.digests import hash_file
from ledger.storage.files import files_below, is_folder, opened_regular_file, real_path
from ledger.storage.filesystem import OS
from ledger.storage.hints import describe_foreign_bytes

__all__ = [
    "InputFile",
    "decode",
    "find_files",
    "identify_files",
    "opened_for_seeking",
    "read_lines",
    "read_whole",
]

MAX_DOCUMENT_BYTES: Final = 2**28
"""Longest line or file that is taken as one document."""

_GLOB_CHARACTERS: Final = frozenset("*?[")
_COMPRESSIONS: Final = (".gz", ".zst")


@dataclass(frozen=True)
class InputFile:
    """A file to read and the name under which it is recorded."""

    path: Path
    name: str
    readings: list[Reading] = field(default_factory=list, compare=False, repr=False)
    """What it gave each time that documents were read from it."""

    @property
    def compression(self) -> str | None:
        """The ending of its name that says how it is compressed; null where none does."""
        return self.path.suffix if self.path.suffix in _COMPRESSIONS else None

    @property
    def kind(self) -> str:
        """The ending of its name without that of a compression, such as `.jsonl`."""
        return Path(self.path.stem).suffix if self.compression else self.path.suffix


def find_files(entries: Sequence[str], *, suffixes: Sequence[str]) -> list[InputFile]:
    """Return the files that a configuration names, in its order; those of a glob or folder sorted by path.

    Args:
        entries: files, globs, and folders, of which every file below with one of `suffixes` is taken; names that
            begin with a dot are left out there.
        suffixes: for example `.jsonl`; each also with `.gz` or `.zst` behind it.

    Raises:
        EvidenceMissingError: an entry matches nothing.
        ConfigError: two entries name the same file, or one is empty.
    """
    found = [file for entry in entries for file in _expand(entry, suffixes=suffixes)]
    seen: dict[Path, InputFile] = {}
    for file in found:
        real = real_path(file.path)
        if real in seen:
            problem = f"the file {str(file.path)!r} is named twice"
            raise ConfigError(problem, place="source.files", expected="every file once")
        seen[real] = file
    return found


def identify_files(
    files: Sequence[InputFile], *, progress: Callable[[int], object] | None = None
) -> list[SourceFile]:
    """Return the digests of all files, in order; raises what reading them raises."""
    identified = []
    for file in files:
        digest = hash_file(real_path(file.path), progress=progress)
        identified.append(SourceFile(name=file.name, bytes=digest.bytes, sha256=digest.sha256))
    return identified


def read_lines(file: InputFile) -> Iterator[bytes]:
    """Yield the lines of a file without the newline that ends each, in bounded memory.

    Raises:
        InvalidDocumentError: a line is too long.
        VerificationError: compressed data is damaged.
        StorageError: the system refuses.
    """
    number = 0
    with _opened(file) as stream:
        while line := stream.readline(MAX_DOCUMENT_BYTES + 1):
            number += 1
            if len(line) > MAX_DOCUMENT_BYTES:
                _refuse_size(file, place=f"line {number}")
            yield line[:-1] if line.endswith(b"\n") else line


def read_whole(file: InputFile) -> bytes:
    """Return the whole content of a file; raises what `read_lines` raises."""
    with _opened(file) as stream:
        data = stream.read(MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        _refuse_size(file, place="the whole file")
    return data


@contextmanager
def opened_for_seeking(file: InputFile) -> Iterator[tuple[IO[bytes], Reading | None]]:
    """Open a file whose format is read back and forth; a compressed one is unpacked into an unnamed file first.

    With it comes the reading that every text of the file must be added to; null where its bytes were already.

    Raises:
        VerificationError: compressed data is damaged.
        StorageError: the system refuses.
    """
    if file.compression is None:
        with _opened(file, is_watched=False) as stream:
            yield stream, file.readings[-1].stamp(stream.fileno(), path=file.path)
        return
    with _opened(file) as stream, tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(stream, unpacked, 2**20)
        unpacked.seek(0)
        yield unpacked, None


def decode(data: bytes, *, file: InputFile, place: str) -> str:
    """Return UTF-8 text as it stands, nothing stripped or replaced.

    Raises:
        InvalidDocumentError: it is not UTF-8; the message names the byte.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} (0x{data[error.start]:02X}) is not UTF-8"
        raise InvalidDocumentError(
            problem,
            path=file.path,
            place=place,
            expected="UTF-8 text",
            advice=describe_foreign_bytes(data[:4_096]) or "convert the file, for example with iconv",
        ) from error


def _expand(entry: str, *, suffixes: Sequence[str]) -> list[InputFile]:
    if not entry:
        raise ConfigError("an empty path is given", place="source.files", expected="a file, glob or folder")
    path = Path(entry)
    if is_folder(path):
        return _in_folder(path, suffixes=suffixes)
    if OS.exists(path):
        return [_input(path, path.name)]
    if not _GLOB_CHARACTERS.intersection(entry):
        raise EvidenceMissingError("there is no such file or folder", path=entry, place="source.files")
    root = _fixed_part(path)
    matches = sorted(set(_matching(root, path.parts[len(root.parts) :]))) if is_folder(root) else []
    if not matches:
        raise EvidenceMissingError("no file matches this pattern", path=entry, place="source.files")
    return [_input(match, match.relative_to(root).as_posix()) for match in matches]


def _in_folder(folder: Path, *, suffixes: Sequence[str]) -> list[InputFile]:
    endings = tuple(f"{suffix}{more}" for suffix in suffixes for more in ("", *_COMPRESSIONS))
    below = files_below(folder, leaves_out=_is_hidden)
    names = [name for name in below if name.endswith(endings) and not _is_hidden(name.rpartition("/")[2])]
    if not names:
        problem = "the folder holds no such file"
        expected = f"files that end in {', '.join(endings)}"
        raise EvidenceMissingError(problem, path=folder, place="source.files", expected=expected)
    return [_input(folder / name, name) for name in names]


def _input(path: Path, name: str) -> InputFile:
    r"""Return a file under its name, in which bytes that are not UTF-8 are written as `\xff`."""
    return InputFile(path, os.fsencode(name).decode("utf-8", "backslashreplace"))


def _matching(folder: Path, parts: Sequence[str], *, within: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the files below a folder that a pattern's parts match, as the shell and `glob` read them.

    Unlike them, this raises where a folder cannot be listed, instead of taking it for empty, and `**` never enters a
    folder from within itself, through a link.
    """
    first, *rest = parts
    below = parts if first == "**" else rest
    if first == "**" == next(iter(rest), None):  # the one means what both mean
        yield from _matching(folder, rest, within=within)
        return
    if first == "**":
        real = real_path(folder)
        if real in within:
            return
        within |= {real}
        yield from _matching(folder, rest) if rest else ()
    for name in _names_matching(folder, first):
        if is_folder(folder / name):
            chain = within if first == "**" else frozenset()
            yield from _matching(folder / name, below, within=chain) if below else ()
        elif not rest and OS.exists(folder / name):
            yield folder / name


def _names_matching(folder: Path, part: str) -> list[str]:
    if not _GLOB_CHARACTERS.intersection(part):
        return [part]
    names = OS.list_directory(folder)
    if not _is_hidden(part):
        names = [name for name in names if not _is_hidden(name)]
    return names if part == "**" else [name for name in names if fnmatchcase(name, part)]


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _fixed_part(pattern: Path) -> Path:
    """Return the folders of a pattern in front of the first one that is a pattern itself."""
    parts = []
    for part in pattern.parts[:-1]:
        if _GLOB_CHARACTERS.intersection(part):
            break
        parts.append(part)
    return Path(*parts)


@contextmanager
def _opened(file: InputFile, *, is_watched: bool = True) -> Iterator[IO[bytes]]:
    """Open a file, decompressing where its name says so, and explain what goes wrong inside the block.

    What is read goes to a new reading of the file; if it is not watched, nothing does by itself.
    """
    path, reading = real_path(file.path), Reading()
    file.readings.append(reading)
    with opened_regular_file(path) as descriptor:
        if file.compression and OS.fstat(descriptor, path=path).st_size == 0:
            _refuse_compressed(file, EOFError("the file is empty"))  # the libraries would take it for no text
        try:
            raw = os.fdopen(os.dup(descriptor), "rb", buffering=0)
            watched = WatchedBytes(raw, reading=reading) if is_watched else raw
            with (
                io.BufferedReader(watched, BUFFER_BYTES) as plain,
                _decompressed(plain, file=file) as stream,
            ):
                yield stream
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            _refuse_compressed(file, error)
        except OSError as error:
            if error.errno is None and file.compression:
                _refuse_compressed(file, error)
            raise StorageError(f"could not read: {error.strerror or error}", path=file.path) from error
        finally:
            reading.end()


def _decompressed(raw: IO[bytes], *, file: InputFile) -> AbstractContextManager[IO[bytes]]:
    if file.compression == ".gz":
        return cast("AbstractContextManager[IO[bytes]]", gzip.GzipFile(fileobj=raw))
    return zstd_stream(raw) if file.compression == ".zst" else raw


def _refuse_compressed(file: InputFile, error: Exception) -> NoReturn:
    name = "gzip" if file.compression == ".gz" else "Zstandard"
    problem = f"the {name} data is damaged: {error}"
    raise VerificationError(problem, path=file.path, advice="fetch the file again") from error


def _refuse_size(file: InputFile, *, place: str) -> None:
    problem = f"this document is longer than {MAX_DOCUMENT_BYTES} bytes"
    raise InvalidDocumentError(problem, path=file.path, place=place, advice="split it into several documents")
