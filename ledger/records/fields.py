"""The field types that records share: counts, digests, times, names, numbers that may be non-finite.

Each type carries its bounds twice, once for msgspec (events) and once for pydantic (documents), so that an event
and a document never disagree about what a count or a digest is. (The two pattern dialects end a text differently:
Python's `$` would accept a trailing newline, Rust's does not.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta
from pydantic import Field

__all__ = [
    "FIRST_DATA_CHAIN",
    "MAX_INTEGER",
    "PREFIX_PATTERN",
    "SHA256_PATTERN",
    "TIME_PATTERN",
    "Count",
    "Finite",
    "Json",
    "LineDigestPrefix",
    "LineSha256",
    "LineTime",
    "Measurement",
    "Name",
    "NonFinite",
    "NonNegative",
    "Positive",
    "Sha256",
    "Text",
    "Time",
    "as_measurement",
    "as_measurements",
    "is_finite",
]

MAX_INTEGER: Final = 2**53 - 1
"""The greatest integer that every JSON reader keeps exactly."""

MAX_FLOAT: Final = 1.7976931348623157e308

FIRST_DATA_CHAIN: Final = "51dedb79100ef7aa53481e3b37bb275c5454740c6e8047e4004b7d23870b8664"
"""`data_chain` before the first microbatch: SHA-256 of `ledger-data-v1\\n`."""

Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER), Field(ge=0, le=MAX_INTEGER)]
"""A whole number from 0 to 2^53 - 1."""

Positive = Annotated[int, Meta(ge=1, le=MAX_INTEGER), Field(ge=1, le=MAX_INTEGER)]
"""A whole number from 1 to 2^53 - 1."""

Finite = Annotated[float, Meta(ge=-MAX_FLOAT, le=MAX_FLOAT), Field(allow_inf_nan=False)]
"""A finite number. (msgspec lets NaN into a plain float field when it converts; bounds stop it.)"""

NonNegative = Annotated[float, Meta(ge=0, le=MAX_FLOAT), Field(ge=0, allow_inf_nan=False)]
"""A finite number of at least 0; seconds are this."""

NonFinite = Literal["NaN", "Infinity", "-Infinity"]
"""How a non-finite measurement is written, because a diverged run is exactly what must be recorded."""

Measurement = Finite | NonFinite
"""A measured number, finite or not."""

SHA256_PATTERN: Final = r"\A[0-9a-f]{64}\Z"
PREFIX_PATTERN: Final = r"\A[0-9a-f]{16}\Z"
TIME_PATTERN: Final = r"\A[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z\Z"

Sha256 = Annotated[str, Meta(pattern=SHA256_PATTERN), Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 digest in 64 lower-case hexadecimal digits."""

LineSha256 = Annotated[str, Meta(extra_json_schema={"pattern": SHA256_PATTERN})]
LineDigestPrefix = Annotated[str, Meta(extra_json_schema={"pattern": PREFIX_PATTERN})]
LineTime = Annotated[str, Meta(extra_json_schema={"pattern": TIME_PATTERN})]
"""A digest, the first 16 digits of one, and a time, on lines of the log: `decode_event` looks at them all at once."""

Time = Annotated[
    str,
    Meta(pattern=TIME_PATTERN),
    Field(pattern=r"^[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z$"),
]
"""RFC 3339 in UTC with microseconds and `Z`. For people: order never comes from it."""

Name = Annotated[
    str,
    Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z"),
    Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"),
]
"""A name that is safe as one component of a path: letters, digits, `_`, `.`, `-`; no leading `.` or `-`."""

Text = Annotated[str, Meta(max_length=65_536), Field(max_length=65_536)]
"""Free text of at most 65,536 characters."""

Json = Any
"""Any JSON value; the strict reader and the canonical writer bound it."""


def as_measurement(value: float) -> Measurement:
    """Return `value` as records write it: `-0.0` as `0.0`, non-finite numbers as their names."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value) + 0.0


def as_measurements(values: Mapping[str, float]) -> dict[str, Measurement]:
    """Return named numbers as records write them."""
    return {name: as_measurement(value) for name, value in values.items()}


def is_finite(value: Measurement | None) -> bool:
    """Tell whether a recorded measurement is a finite number (`None` is not)."""
    return value is not None and not isinstance(value, str)
