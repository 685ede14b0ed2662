"""Digests of live tensors that a loop hands over as NumPy arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ledger.errors import UsageError
from ledger.records.documents import TensorEntry
from ledger.storage.digests import tensor_table_sha256

__all__ = ["digest_arrays"]

_DTYPES: Final = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


def digest_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the digest of named arrays as the records define it for model and optimizer.

    It equals the digest of the same tensors in a safetensors file, whatever the order of the names.

    Raises:
        UsageError: an array has a type that safetensors has no name for.
    """
    return tensor_table_sha256({name: _entry(name, array) for name, array in arrays.items()})


def _entry(name: str, array: NDArray[Any]) -> TensorEntry:
    if array.dtype.name not in _DTYPES:
        raise UsageError(f"tensor {name} has type {array.dtype}", expected=f"one of {', '.join(_DTYPES)}")
    stored = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return TensorEntry(
        dtype=_DTYPES[array.dtype.name],
        shape=list(array.shape),
        sha256=hashlib.sha256(stored.tobytes()).hexdigest(),
    )
