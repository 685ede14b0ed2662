"""LG407: whether the model is what its master weights round to.

A loop that trains in fewer bits than it keeps stores the exact weights with the optimizer, as `group/parameter/master`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ledger.errors import LedgerError, StorageError
from ledger.records.documents import CheckpointManifest
from ledger.records.layout import MODEL_FILE, OPTIMIZER_FILE
from ledger.storage.safetensors import opened_tensors

__all__ = ["MasterWeights", "find_master_weights", "master_problems"]

MASTER: Final = "master"
_ELEMENTS: Final = 1 << 18

Array = NDArray[Any]
Cast = Callable[[Array], Array]


class MasterWeights(NamedTuple):
    """The master weights of a checkpoint: tensors of the optimizer's file by the parameter that they are of."""

    comparable: dict[str, str]
    other: list[str]
    """Tensors whose parameter the model does not hold under that name, in that shape and in a type known here."""


def find_master_weights(manifest: CheckpointManifest) -> MasterWeights:
    """Return what the manifest lists as master weights."""
    found = MasterWeights({}, [])
    files = [manifest.files.get(name) for name in (MODEL_FILE, OPTIMIZER_FILE)]
    model, optimizer = [{} if entry is None else entry.tensors or {} for entry in files]
    for name, kept in sorted(optimizer.items()):
        _, _, rest = name.partition("/")
        parameter, _, field = rest.rpartition("/")
        if field != MASTER or not parameter:
            continue
        stored = model.get(parameter)
        if stored is None or stored.shape != kept.shape or (kept.dtype, stored.dtype) not in _CASTS:
            found.other.append(name)
        else:
            found.comparable[parameter] = name
    return found


def master_problems(folder: Path, manifest: CheckpointManifest) -> Iterator[tuple[str, str, str]]:
    """Yield (rule, file, problem) for each parameter that is not its master weights rounded to its type.

    Raises:
        StorageError: the system refused to read.
    """
    pairs = find_master_weights(manifest).comparable
    if not pairs:
        return
    try:
        with (
            opened_tensors(folder / MODEL_FILE) as model,
            opened_tensors(folder / OPTIMIZER_FILE) as optimizer,
        ):
            for parameter, name in pairs.items():
                stored = model(parameter, _ELEMENTS)
                problem = _compare(
                    manifest, parameter, zip(stored, optimizer(name, _ELEMENTS), strict=True), name
                )
                if problem is not None:
                    yield "LG407", OPTIMIZER_FILE, problem
    except StorageError:
        raise
    except LedgerError:
        return  # LG402 says what is wrong with the file


def _compare(
    manifest: CheckpointManifest, parameter: str, blocks: Iterator[tuple[bytes, bytes]], name: str
) -> str | None:
    of_model, of_master = [
        (manifest.files[file].tensors or {})[tensor].dtype
        for file, tensor in ((MODEL_FILE, parameter), (OPTIMIZER_FILE, name))
    ]
    read, stored_as, cast = _CASTS[of_master, of_model]
    different, total, first = 0, 0, None
    for stored, exact in blocks:
        found, expected = np.frombuffer(stored, dtype=stored_as), cast(np.frombuffer(exact, dtype=read))
        unequal = np.flatnonzero((found != expected) & ~((found != found) & (expected != expected)))  # noqa: PLR0124
        if first is None and unequal.size:
            first = total + int(unequal[0])
        different, total = different + unequal.size, total + found.size
    if not different:
        return None
    return (
        f"{different:,} of {total:,} numbers of {parameter} are not its master weights {name} rounded to {of_model} "
        f"(the first is number {first}): the model and the weights that training goes on from are two states"
    )


def _to(dtype: str) -> Cast:
    def cast(values: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return values.astype(dtype)

    return cast


def _to_bf16(bits: Array) -> Array:
    """Round the bits of float32 numbers to those of bfloat16, to nearest, ties to even."""
    wide = bits.astype(np.uint64)
    rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16
    is_nan = (wide & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, wide >> 16, rounded).astype("<u2")


_CASTS: Final[dict[tuple[str, str], tuple[str, str, Cast]]] = {
    ("F32", "BF16"): ("<u4", "<u2", _to_bf16),
    ("F32", "F16"): ("<f4", "<f2", _to("<f2")),
    ("F32", "F32"): ("<f4", "<f4", _to("<f4")),
    ("F64", "F32"): ("<f8", "<f4", _to("<f4")),
    ("F64", "F64"): ("<f8", "<f8", _to("<f8")),
}
"""Types of the master weights and of the model: how each is read, and how the one becomes the other."""
