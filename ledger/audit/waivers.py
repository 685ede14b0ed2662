"""Which waivers of a run are in force: readable, not expired, and of a rule that may be waived at all."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledger.audit.files import RunFiles
from ledger.records.layout import WAIVERS
from ledger.records.waivers import Waiver, Waivers, is_waivable
from ledger.storage.clock import Clock, SystemClock

__all__ = ["WaiversFound", "find_waivers", "spell"]


@dataclass(frozen=True, kw_only=True)
class WaiversFound:
    """The waivers of a run."""

    in_force: list[Waiver] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Waiver to the reason why it counts for nothing."""


def find_waivers(files: RunFiles, *, clock: Clock | None = None) -> WaiversFound:
    """Read waivers.json; a file that cannot be read waives nothing, and says so."""
    loaded = files.load(WAIVERS, Waivers)
    if loaded.document is None:
        return WaiversFound() if loaded.is_absent else WaiversFound(refused={WAIVERS: str(loaded.error)})
    now = (clock or SystemClock()).now()
    in_force, refused = [], {}
    for waiver in loaded.document.waivers:
        if not is_waivable(waiver.rule):
            refused[spell(waiver)] = "integrity cannot be waived"
        elif waiver.expires <= now:
            refused[spell(waiver)] = f"expired at {waiver.expires}"
        else:
            in_force.append(waiver)
    return WaiversFound(in_force=in_force, refused=refused)


def spell(waiver: Waiver) -> str:
    """Name a waiver by what it waives."""
    return f"waiver of {waiver.rule} {waiver.where}"
