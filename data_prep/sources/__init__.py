"""Sources: where documents come from, one after the other, and what identifies them."""

from __future__ import annotations

from data_prep.config import JsonlSource, PreparationConfig, PythonDocsSource
from data_prep.sources.document import Document, Source
from data_prep.sources.jsonl import JsonlFiles
from data_prep.sources.python_docs import PythonDocs
from data_prep.sources.text import TextFiles

__all__ = ["Document", "Source", "open_source"]


def open_source(config: PreparationConfig) -> Source:
    """Return the source that a configuration names.

    Raises:
        ConfigError: it names no file, or one twice.
        EvidenceMissingError: what it names is not there.
    """
    source = config.source
    if isinstance(source, PythonDocsSource):
        return PythonDocs()
    if isinstance(source, JsonlSource):
        return JsonlFiles(source.files, column=source.column)
    return TextFiles(source.files, unit=source.unit)
