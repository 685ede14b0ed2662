"""JSON Schemas of every document and every event, for other programs."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from pydantic import TypeAdapter

from ledger.audit import Comparison, Listing, Summary
from ledger.records.base import Document
from ledger.records.dataset import DatasetManifest, PreparationNotes
from ledger.records.documents import DOCUMENTS
from ledger.records.events import EVENT_KINDS
from ledger.report.outputs import OUTPUTS

__all__ = ["schema_of", "schemas"]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_CHAIN: Final = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_PRINTED: Final[tuple[type[Document], ...]] = (
    DatasetManifest,
    PreparationNotes,
    Summary,
    Comparison,
    Listing,
)

_ALL: Final[dict[str, type[Document]]] = DOCUMENTS | {model.SCHEMA: model for model in _PRINTED}


def schemas() -> list[str]:
    """Return the names of all schemas: documents by their `schema`, `event.<kind>`, and `output.<command>`."""
    return [*sorted(_ALL), *(f"event.{kind}" for kind in EVENT_KINDS), *OUTPUTS]


def schema_of(name: str) -> dict[str, Any] | None:
    """Return the JSON Schema of a document, a stored line of the log or an output; None for an unknown name."""
    if name in _ALL:
        return {"$schema": _DIALECT, "title": name, **_document_schema(_ALL[name])}
    if name in OUTPUTS:
        schema = TypeAdapter(OUTPUTS[name]).json_schema(by_alias=True, mode="serialization")
        return {"$schema": _DIALECT, **schema, "title": name}
    kind = EVENT_KINDS.get(name.removeprefix("event."))
    return None if kind is None else {"$schema": _DIALECT, **_line_schema(kind)}


def _document_schema(model: type[Document]) -> dict[str, Any]:
    return {key: value for key, value in model.model_json_schema(by_alias=True).items() if key != "title"}


def _line_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of one event as it is stored, its chain digest included."""
    (root,), components = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
    own: dict[str, Any] = _portable(components[root["$ref"].rpartition("/")[2]])
    own["properties"] = own["properties"] | {"chain": _CHAIN}
    own["required"] = [*own["required"], "chain"]
    rest = {name: _portable(part) for name, part in components.items() if name != kind.__name__}
    return own | {"$defs": rest} if rest else own


def _portable(schema: Any) -> Any:
    """Return a schema with its patterns in the dialect that JSON Schema speaks."""
    if isinstance(schema, list):
        return [_portable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    portable = {key: _portable(value) for key, value in schema.items()}
    if isinstance(portable.get("pattern"), str):
        portable["pattern"] = portable["pattern"].replace(r"\A", "^").replace(r"\Z", "$")
    return portable
