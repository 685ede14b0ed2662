"""The documentation that every Python installation holds: the embedded corpus, there without a network.

The rule. First the texts of `pydoc_data/topics.py`, in the order of their keys. Then the docstrings of the standard
library: every `.py` file below its folder, in the order of the paths, without folders named `site-packages`,
`dist-packages`, `test`, `tests`, `idle_test` or `__pycache__`, without `pydoc_data`, and without `_sysconfigdata…`
(machine-specific); of every file that this Python can parse the docstrings of the module, its classes and its
functions, outer before inner, in the order of the source, indentation removed as `inspect.cleandoc` does, empty ones
left out. Files are read with `ast`; nothing is imported or run. The corpus differs between Python versions: its
revision says which it was, its digests what came out.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import platform
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Final

from data_prep.sources.document import Document, document_from
from ledger.errors import EvidenceMissingError
from ledger.records.dataset import DatasetSource, SourceFile
from ledger.storage.files import files_below, read_regular_file, real_path
from ledger.storage.filesystem import OS

__all__ = ["PythonDocs"]

_LEFT_OUT: Final = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "pydoc_data"}
)
_MAX_SOURCE_BYTES: Final = 2**28
_TOPICS: Final = "pydoc_data/topics.py"
_BLOCKS: Final = ("body", "handlers", "cases", "orelse", "finalbody")
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class PythonDocs:
    """The documents of this Python's standard library, read once and held in memory (about 2 MB)."""

    def __init__(self, *, library: Path | None = None) -> None:
        """Read from `library`, by default the standard library of this Python."""
        self._library = library or Path(sysconfig.get_path("stdlib"))

    def identify(self, *, progress: Callable[[int], object] | None = None) -> DatasetSource:
        """Return the version of this Python and the digests of what its documentation holds."""
        files = [_digest("topics", self._topics), _digest("docstrings", self._docstrings)]
        if progress:
            progress(sum(file.bytes for file in files))
        return DatasetSource(
            kind="python-docs",
            id="python-docs",
            requested_revision=None,
            resolved_revision=f"{platform.python_implementation().lower()}-{platform.python_version()}",
            options={},
            files=files,
        )

    def misread(self, now: DatasetSource) -> list[str]:
        """Return nothing: what is identified is what was read."""
        del now
        return []

    def documents(self) -> Iterator[Document]:
        """Yield the topics, then the docstrings."""
        yield from self._topics
        yield from self._docstrings

    def local_files(self) -> list[tuple[str, Path]]:
        """Return the topics of pydoc and every source file whose docstrings are read."""
        return [(name, self._library / name) for name in [_TOPICS, *_library_files(self._library)]]

    @cached_property
    def _topics(self) -> list[Document]:
        path = self._library / _TOPICS
        if not OS.exists(path):
            advice = "install the documentation of Python, or prepare another source"
            raise EvidenceMissingError("this Python has no topics of pydoc", path=path, advice=advice)
        topics = _literal_topics(_parse(path))
        return [document_from(topics[key], path=_TOPICS, place=f"topic {key}") for key in sorted(topics)]

    @cached_property
    def _docstrings(self) -> list[Document]:
        with _without_collector():
            return [
                document_from(text, path=name, place=f"line {getattr(node, 'lineno', 1)}")
                for name in _library_files(self._library)
                for node in _documented_nodes(_parse(self._library / name))
                if (text := ast.get_docstring(node, clean=True))
            ]


def _library_files(library: Path) -> list[str]:
    names = files_below(library, leaves_out=_LEFT_OUT.__contains__)
    return [
        name
        for name in names
        if name.endswith(".py") and not name.rpartition("/")[2].startswith("_sysconfigdata")
    ]


@contextmanager
def _without_collector() -> Iterator[None]:
    """Hold the cyclic collector back: syntax trees hold no cycles, and looking for some doubles the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file; an empty one where this Python cannot parse it."""
    data = read_regular_file(real_path(path), max_bytes=_MAX_SOURCE_BYTES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(data)
        except (SyntaxError, ValueError):
            return ast.Module(body=[], type_ignores=[])


def _documented_nodes(node: ast.AST) -> Iterator[_Documented]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node
    for block in _BLOCKS:
        for child in getattr(node, block, ()):
            yield from _documented_nodes(child)


def _literal_topics(tree: ast.Module) -> dict[str, str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics = ast.literal_eval(node.value)
            return {str(key): str(text) for key, text in topics.items()}
    return {}


def _digest(name: str, documents: Iterable[Document]) -> SourceFile:
    """Digest documents, each behind its length, so that where one ends is part of it."""
    digest, total = hashlib.sha256(), 0
    for document in documents:
        digest.update(document.bytes.to_bytes(8, "little") + document.text.encode())
        total += document.bytes
    return SourceFile(name=name, bytes=total, sha256=digest.hexdigest())
