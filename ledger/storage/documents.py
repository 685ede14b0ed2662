"""Reading and writing the documents beside the log: strict JSON in front, one strict model behind."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from ledger.errors import InvalidDocumentError, NewerVersionError, VerificationError
from ledger.records.base import Document
from ledger.storage.atomic import create_file, replace_file
from ledger.storage.canonical import canonical_json, digest_of, sha256_hex
from ledger.storage.files import ensure_folder, read_regular_file
from ledger.storage.filesystem import OS, FileSystem, StrPath
from ledger.storage.strict_json import MAX_DOCUMENT_BYTES, parse_json

__all__ = [
    "StoredDocument",
    "document_bytes",
    "document_sha256",
    "load_document",
    "parse_document",
    "read_document",
    "store_by_digest",
    "validate_model",
    "write_document",
]

_D = TypeVar("_D", bound=Document)
_M = TypeVar("_M", bound=BaseModel)


class StoredDocument(NamedTuple, typing.Generic[_D]):
    """A document with the digest of the bytes it was read from."""

    document: _D
    sha256: str
    bytes: int


def read_document(
    path: StrPath,
    model: type[_D],
    *,
    sha256: str | None = None,
    fs: FileSystem = OS,
    max_bytes: int = MAX_DOCUMENT_BYTES,
) -> _D:
    """Read a document of one schema; with `sha256`, only if its stored bytes have that digest.

    Raises:
        VerificationError: its bytes have another digest.
        InvalidDocumentError: it is not what the schema says; names the place, and the nearest known key.
        NewerVersionError: a newer version of the ledger wrote it.
        EvidenceMissingError: there is none.
        UnsafeError: something that is no regular file stands in its place.
        StorageError: the system refused.
    """
    return load_document(path, model, sha256=sha256, fs=fs, max_bytes=max_bytes).document


def load_document(
    path: StrPath,
    model: type[_D],
    *,
    sha256: str | None = None,
    fs: FileSystem = OS,
    max_bytes: int = MAX_DOCUMENT_BYTES,
) -> StoredDocument[_D]:
    """Read a document together with the digest of its stored bytes; errors as `read_document`."""
    data = read_regular_file(path, max_bytes=max_bytes, fs=fs)
    found = sha256_hex(data)
    if sha256 is not None and found != sha256:
        raise VerificationError(
            f"its bytes have SHA-256 {found}",
            path=path,
            expected=sha256,
            advice="it was changed or damaged after it was recorded: restore it from a copy",
        )
    return StoredDocument(parse_document(data, model, path=path, max_bytes=max_bytes), found, len(data))


def parse_document(
    data: bytes, model: type[_D], *, path: StrPath | None = None, max_bytes: int = MAX_DOCUMENT_BYTES
) -> _D:
    """Parse and validate a document of one schema.

    Raises:
        InvalidDocumentError, NewerVersionError: as `read_document`.
    """
    value = parse_json(data, path=path, max_bytes=max_bytes)
    if not isinstance(value, dict):
        raise InvalidDocumentError(
            f"the document is {_describe(value)}", path=path, expected=f"an object of schema {model.SCHEMA}"
        )
    _validate_schema(value, model, path=path)
    return validate_model(value, model, path=path, what=f"what the schema {model.SCHEMA} says")


def validate_model(value: object, model: type[_M], *, path: StrPath | None, what: str) -> _M:
    """Validate what was parsed already against a model; `what` says in a refusal what was expected.

    Raises:
        InvalidDocumentError: it does not fit; names the place, and the nearest known key.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _explain(error, model, value, path=path, expected=what) from error


def document_bytes(document: Document) -> bytes:
    """Return the form in which a document is stored: RFC 8785 of its fields, which the strict reader accepts.

    Raises:
        InvalidDocumentError: it holds a value that JSON cannot, or that the reader would refuse (a key outside ASCII).
    """
    data = canonical_json(document.model_dump(by_alias=True))
    parse_json(data, max_bytes=len(data))
    return data


def document_sha256(document: Document) -> str:
    """Return the SHA-256 digest of the form in which a document is stored."""
    return digest_of(document.model_dump(by_alias=True))


def write_document(path: StrPath, document: Document, *, replace: bool, fs: FileSystem = OS) -> str:
    """Write a document whole and durably; returns the digest of its bytes.

    Without `replace`, a file that exists must have the same content already.

    Raises:
        InvalidDocumentError: it holds a value that JSON cannot, or is too large to be read again.
        RefusedError: without `replace`, a file of that name exists with other content.
        StorageError: the system refused; what was there is still there, whole.
    """
    data = document_bytes(document)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InvalidDocumentError(
            f"the document takes {len(data):,} bytes", path=path, expected=f"at most {MAX_DOCUMENT_BYTES:,}"
        )
    if replace:
        replace_file(path, data, fs=fs)
    else:
        create_file(path, data, fs=fs)
    return sha256_hex(data)


def store_by_digest(folder: StrPath, document: Document, *, fs: FileSystem = OS) -> str:
    """Write a document into a folder, which is made, under its digest as a name; returns the digest.

    Raises:
        InvalidDocumentError, RefusedError, StorageError: as `write_document`.
    """
    sha256 = document_sha256(document)
    ensure_folder(folder, fs=fs)
    write_document(Path(folder) / f"{sha256}.json", document, replace=False, fs=fs)
    return sha256


def _validate_schema(value: Mapping[str, Any], model: type[Document], *, path: StrPath | None) -> None:
    """Insist on the schema's name and on a version that this program knows, before anything else is judged."""
    if "schema" not in value:
        raise InvalidDocumentError("it names no `schema`", path=path, expected=f'"schema":"{model.SCHEMA}"')
    if value["schema"] != model.SCHEMA:
        raise InvalidDocumentError(
            f"this is a document of schema {ascii(value['schema'])[:80]}", path=path, expected=model.SCHEMA
        )
    version = value.get("version")
    if type(version) is not int or version < 1:
        found = _describe(version) if "version" in value else "absent"
        raise InvalidDocumentError(
            f"its `version` is {found}", path=path, expected=f"a whole number from 1 to {model.VERSION}"
        )
    if version > model.VERSION:
        raise NewerVersionError(
            f"this document has version {version}; the newest known here is {model.VERSION}",
            path=path,
            advice="use a ledger of at least the version that wrote it",
        )


def _explain(
    error: ValidationError, model: type[BaseModel], value: object, *, path: StrPath | None, expected: str
) -> InvalidDocumentError:
    """Turn the first of pydantic's complaints into ours and count the other places."""
    complaints = error.errors(include_url=False, include_input=True)
    first = complaints[0]
    location = _real_location(first["loc"], value)
    others = {_real_location(complaint["loc"], value) for complaint in complaints} - {location}
    place = f"`{'.'.join(str(part) for part in location)}`" if location else None
    problem, advice = first["msg"].removeprefix("Value error, "), None
    if first["type"] == "extra_forbidden":
        problem = "the key is unknown"
        near = get_close_matches(str(location[-1]), _known_keys(model, location[:-1]), n=1)
        advice = f"did you mean `{near[0]}`?" if near else None
    elif first["type"] == "missing":
        problem = "the key is missing"
    elif not isinstance(first["input"], dict | list):
        problem = f"{problem}, but it is {_describe(first['input'])}"
    if others:
        problem += f" (and {len(others)} more)"
    return InvalidDocumentError(problem, path=path, place=place, expected=expected, advice=advice)


def _real_location(location: tuple[int | str, ...], value: object) -> tuple[int | str, ...]:
    """Leave out what pydantic adds to a place for the members of a union."""
    real: list[int | str] = []
    for number, part in enumerate(location, start=1):
        if isinstance(value, dict) and (part in value or number == len(location)):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        real.append(part)
    return tuple(real)


def _known_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the keys that the model at a place inside a document knows; none where there is no model."""
    here: Any = model
    for part in location:
        fields = {(field.alias or name): field.annotation for name, field in here.model_fields.items()}
        if part in fields:
            here = _model_in(fields[str(part)])
        if here is None:
            return []
    return [field.alias or name for name, field in here.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Find the model inside `X | None`, `list[X]` or `dict[str, X]`."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return next(
        (found for part in typing.get_args(annotation) if (found := _model_in(part)) is not None), None
    )


def _describe(value: object) -> str:
    """Show a JSON value in a message, shortened."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return ascii(value)[:80]
