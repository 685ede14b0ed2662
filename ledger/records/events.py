"""The events of the log, one struct a kind, and their one encoding.

Field order is line order: `event`, the envelope, the running totals, then what the kind adds. Every field is
always written. Adding a kind means a new struct in `AnyEvent`; changing a field means a new `LOG_VERSION`.
"""

from __future__ import annotations

import json
import re
from typing import Final, Literal, Union

import msgspec

from ledger.records.fields import (
    PREFIX_PATTERN,
    SHA256_PATTERN,
    TIME_PATTERN,
    Count,
    Json,
    LineDigestPrefix,
    LineSha256,
    LineTime,
    Measurement,
    Name,
    NonNegative,
    Positive,
    Sha256,
    Text,
)
from ledger.records.parts import (
    At,
    Counters,
    Cursor,
    DataIdentities,
    FileRef,
    Parent,
    Part,
    RunFacts,
    Start,
    StateDigests,
    StoredFile,
    Superseded,
)

__all__ = [
    "EVENT_KINDS",
    "LOG_VERSION",
    "PHASES",
    "Amendment",
    "AnyEvent",
    "Checkpoint",
    "CheckpointKind",
    "DataVerified",
    "Event",
    "Export",
    "Note",
    "Overflow",
    "Pruned",
    "ScaleChange",
    "SessionEnd",
    "SessionStart",
    "SessionStatus",
    "SkipReason",
    "TailRecovered",
    "Train",
    "UnknownEvent",
    "Validation",
    "Window",
    "decode_event",
    "encode_event",
]

LOG_VERSION: Final = 1

PHASES: Final = ("startup", "train", "data", "evaluate", "checkpoint", "report", "profile")
"""What the wall clock of a session is divided into."""

CheckpointKind = Literal["final", "milestone", "signal", "interval"]
SkipReason = Literal["overflow", "nonfinite_loss", "nonfinite_grad", "guard"]
SessionStatus = Literal["completed", "closed", "stopped", "interrupted", "failed"]


class Envelope(msgspec.Struct, frozen=True):
    """What every line carries before what its kind adds.

    `seq` is dense from 0 over the whole file; `elapsed` is monotonic seconds in this session.
    """

    seq: Count
    session: Positive
    time: LineTime
    elapsed: NonNegative
    step: Count
    attempts: Count
    skipped: Count
    microbatches: Count
    tokens_seen: Count
    loss_tokens: Count

    @property
    def counters(self) -> Counters:
        """The six running totals as one value."""
        # Spelt out, because it is asked for on every line of a log.
        return Counters(
            self.step, self.attempts, self.skipped, self.microbatches, self.tokens_seen, self.loss_tokens
        )


class Event(Envelope, frozen=True, forbid_unknown_fields=True, tag_field="event"):
    """Base of the kinds that this version knows: exactly their fields, none left out, none unknown."""


class SessionStart(Event, frozen=True, tag="session_start"):
    """A session begins: what runs, on what, from where; state digests are of the live objects after restoring."""

    log_version: Literal[1]
    run_id: Name
    session_id: Name
    argv: list[str]
    run: RunFacts | None
    recipe_sha256: Sha256
    identity_sha256: Sha256
    environment_sha256: Sha256
    data: DataIdentities
    data_parallel: Positive
    tokens_per_microbatch: Positive
    accumulation: Positive
    host: Text
    pid: Count
    boot_id: Text
    start: Start
    parent: Parent | None
    superseded: Superseded
    previous_session: Literal["none", "ended", "unclean"]
    cursor: Cursor
    data_chain: Sha256
    state: StateDigests


class TailRecovered(Event, frozen=True, tag="tail_recovered"):
    """A torn tail that a crash left was moved to quarantine."""

    bytes: Positive
    sha256: Sha256
    file: Text


class Amendment(Event, frozen=True, tag="amendment"):
    """A permitted change of the recipe against the parent session's."""

    field: Text
    from_: Json = msgspec.field(name="from")
    to: Json
    class_: Literal["identity", "operational", "volatile"] = msgspec.field(name="class")
    reason: Text


class Window(Part, frozen=True):
    """What happened since the last train event or session start."""

    updates: Count
    attempts: Count
    skipped: Count
    microbatches: Count
    tokens: Count
    loss_tokens: Count
    seconds: NonNegative
    data_seconds: NonNegative


class Train(Event, frozen=True, tag="train"):
    """Work done in a window. Measurements are of applied updates only, null when there was none."""

    window: Window
    loss: Measurement | None
    loss_last: Measurement | None
    grad_norm: Measurement | None
    grad_norm_max: Measurement | None
    clipped: Count
    lr: dict[str, Measurement] | None
    loss_scale: Measurement | None
    growth_tracker: Count | None
    memory: dict[str, Measurement]
    cursor: Cursor
    batches: list[LineDigestPrefix]
    data_chain: LineSha256
    state: StateDigests | None
    diagnostics: dict[str, Measurement]


class ScaleChange(Part, frozen=True):
    """The loss scale before and after an attempt."""

    before: Measurement
    after: Measurement


class Overflow(Event, frozen=True, tag="overflow"):
    """One skipped attempt: its data was processed, its update was not applied."""

    reason: SkipReason
    loss: Measurement | None
    grad_norm: Measurement | None
    loss_scale: ScaleChange | None
    growth_tracker: Count | None
    consecutive: Positive


class Validation(Event, frozen=True, tag="val"):
    """A measurement on held-out text; `complete` means every target position of the split."""

    split: Name
    data_sha256: Sha256
    loss: Measurement
    tokens: Count
    batches: Count
    complete: bool
    seconds: NonNegative
    metrics: dict[str, Measurement]
    rng_before: Sha256 | None
    rng_after: Sha256 | None
    evaluation: FileRef | None


class Checkpoint(Event, frozen=True, tag="checkpoint"):
    """A checkpoint was committed; `at` is the moment it captured."""

    path: Text
    kind: CheckpointKind
    at: At
    manifest_sha256: Sha256
    bytes: Count
    seconds: NonNegative
    write_seconds: NonNegative
    state: StateDigests


class Export(Event, frozen=True, tag="export"):
    """Weights were written on their own, no checkpoint and no parent; `model` is the digest of the live tensors."""

    path: Text
    files: dict[Name, StoredFile]
    model: Sha256 | None
    seconds: NonNegative


class Pruned(Event, frozen=True, tag="pruned"):
    """Retention is about to remove a checkpoint."""

    path: Text
    manifest_sha256: Sha256
    reason: Text


class DataVerified(Event, frozen=True, tag="data_verified"):
    """A shard was rehashed while training."""

    shard: Text
    sha256: Sha256
    seconds: NonNegative


class Note(Event, frozen=True, tag="note"):
    """Free text by a person."""

    text: Text


class SessionEnd(Event, frozen=True, tag="session_end"):
    """A session ends and says how, in its own words and in seconds of each phase."""

    status: SessionStatus
    reason: Text
    target_step: Count
    state: StateDigests | None
    phases: dict[str, NonNegative]
    error: Text | None


AnyEvent = Union[  # noqa: UP007 - msgspec and mypy both want a plain alias here
    SessionStart,
    TailRecovered,
    Amendment,
    Train,
    Overflow,
    Validation,
    Checkpoint,
    Export,
    Pruned,
    DataVerified,
    Note,
    SessionEnd,
]

EVENT_KINDS: Final[dict[str, type[Event]]] = {
    str(kind.__struct_config__.tag): kind
    for kind in AnyEvent.__args__  # type: ignore[attr-defined]
}


class UnknownEvent(Envelope, frozen=True):
    """A line of a kind this version does not know: its envelope is checked, the rest is kept unread."""

    event: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyEvent)
_kind_decoder = msgspec.json.Decoder(UnknownEvent)
_plain_decoder = msgspec.json.Decoder()

_TIME: Final = re.compile(TIME_PATTERN)
_JOINED: Final = re.compile(TIME_PATTERN.removesuffix(r"\Z") + r" [0-9a-f]{64}(?: [0-9a-f]{16})*\Z")
_JOINED_LENGTH: Final = len("2026-01-01T00:00:00.000000Z ") + 64


def encode_event(event: Event) -> bytes:
    """Return the one encoding of an event, `{…}` without chain and newline."""
    return _encoder.encode(event)


def decode_event(body: bytes) -> AnyEvent | UnknownEvent:
    """Decode `{…}` and insist that it is byte for byte what the encoder writes for the result.

    That rules out what typed decoders accept in silence: duplicate keys, odd spacing, integers in float fields,
    numbers out of range.

    Raises:
        ValueError: the bytes are not a known event with exactly its fields and types in their one encoding, nor a
            well-formed event of an unknown kind.
    """
    event: AnyEvent | UnknownEvent
    try:
        event = _decoder.decode(body)
    except msgspec.ValidationError:
        event = _decode_unknown(body)
    if not _has_lawful_texts(event):
        _refuse_texts(event)
    known = _plain_decoder.decode(body) if isinstance(event, UnknownEvent) else event
    if _encoder.encode(known) != body:
        raise ValueError(
            "not in the ledger's own encoding (a duplicate key, other spacing or another number form)"
        )
    if body.count(b"-") > 2 and b"-0.0" in body:  # the time holds two
        json.loads(body, parse_float=_refuse_negative_zero)
    return event


def _decode_unknown(body: bytes) -> UnknownEvent:
    event = _kind_decoder.decode(body)
    if event.event in EVENT_KINDS:
        _decoder.decode(body)  # raises again, naming the field that is wrong
    return event


def _has_lawful_texts(event: AnyEvent | UnknownEvent) -> bool:
    """Tell whether time and digests of a line are what they should be.

    One look at all of them joined takes a third of one look at each, and decoding would take twice as long with
    those. Since the length is right too, no text holds a space, and so each is where the pattern has it.
    """
    if not isinstance(event, Train):
        return _TIME.search(event.time) is not None
    joined = " ".join((event.time, event.data_chain, *event.batches))
    return len(joined) == _JOINED_LENGTH + 17 * len(event.batches) and _JOINED.search(joined) is not None


def _refuse_texts(event: AnyEvent | UnknownEvent) -> None:
    """Raise for the first text that is not what it should be, in the words of msgspec."""
    texts = [("time", event.time, TIME_PATTERN)]
    if isinstance(event, Train):
        texts += [(f"batches[{index}]", text, PREFIX_PATTERN) for index, text in enumerate(event.batches)]
        texts += [("data_chain", event.data_chain, SHA256_PATTERN)]
    for place, text, pattern in texts:
        if re.search(pattern, text) is None:
            raise msgspec.ValidationError(f"Expected `str` matching regex {pattern!r} - at `$.{place}`")


def _refuse_negative_zero(number: str) -> float:
    if number == "-0.0":
        raise ValueError("-0.0 is not in the ledger's own encoding: zero has no sign here")
    return float(number)
