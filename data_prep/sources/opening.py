"""Opens the source that a configuration names."""

from __future__ import annotations

from data_prep.config import ArrowSource, HubSource, JsonlSource, ParquetSource, SourceConfig, TextSource
from data_prep.sources.document import Source
from data_prep.sources.hub import HubDataset
from data_prep.sources.jsonl import JsonlFiles
from data_prep.sources.python_docs import PythonDocs
from data_prep.sources.tables import TableFiles
from data_prep.sources.text import TextFiles

__all__ = ["open_source"]


def open_source(source: SourceConfig) -> Source:
    """Return the source that a configuration names.

    Raises:
        ConfigError: it names no file, or one twice.
        EvidenceMissingError: what it names is not there.
    """
    if isinstance(source, TextSource):
        return TextFiles(source.files, unit=source.unit)
    if isinstance(source, JsonlSource):
        return JsonlFiles(source.files, column=source.column, id_column=source.id_column)
    if isinstance(source, ParquetSource | ArrowSource):
        return TableFiles(source.files, kind=source.kind, column=source.column, id_column=source.id_column)
    if isinstance(source, HubSource):
        return HubDataset(
            source.id,
            revision=source.revision,
            patterns=source.files,
            column=source.column,
            id_column=source.id_column,
        )
    return PythonDocs()
