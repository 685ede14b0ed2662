"""How a recipe says that its data is read, as one value: the trainer reads by it and the audit reads again by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ledger.dataset.groups import TokenStream
from ledger.dataset.mix import MixLaw
from ledger.dataset.order import Geometry
from ledger.dataset.packing import Packing
from ledger.dataset.reader import Reader
from ledger.dataset.shuffle import Shuffle
from ledger.dataset.source import Source
from ledger.records.fields import Json

__all__ = ["SINGLE_SOURCE", "ReadingRule", "parse_reading_rule"]

_PACKINGS: Final[tuple[Packing, ...]] = ("stream", "documents")
SINGLE_SOURCE: Final = "train"
"""The source of a run that reads no mix, named after its split."""


@dataclass(frozen=True, kw_only=True)
class ReadingRule:
    """What decides the order of reading besides the data itself and the geometry of a microbatch."""

    repeat: int | None = None
    """The first N microbatches are the whole source; None: all of it."""
    shuffle: Shuffle | None = None
    """None: the order of the stream."""
    packing: Packing = "stream"
    law: MixLaw | None = None
    """Chooses among the sources of a mix; None: there is one source."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources."""
        return self.law.names if self.law else (SINGLE_SOURCE,)

    def reader(
        self, streams: Mapping[str, TokenStream], *, geometry: Geometry, scattered: bool = False
    ) -> Reader:
        """Return a reader at the beginning.

        Args:
            streams: source name to the split it reads.
            geometry: the shape of a microbatch.
            scattered: a few microbatches from anywhere are wanted, not one after the other.

        Raises:
            EvidenceMissingError: a split is too small.
            UsageError: these are not the sources of the rule.
        """
        sources = [
            Source(
                stream,
                name=name,
                geometry=geometry,
                repeat=self.repeat,
                shuffle=self.shuffle,
                packing=self.packing,
                scattered=scattered,
            )
            for name, stream in streams.items()
        ]
        return Reader(sources, law=self.law)


def parse_reading_rule(data: Mapping[str, Json]) -> ReadingRule:
    """Return the rule that a recipe's `data` section states; what it does not mention is off.

    The keys are `repeat`, `shuffle` (`group_shards`, `seed`), `packing`, `sources` (name to `weight`) and `mix_seed`.

    Raises:
        ValueError: a key has a form that is not known here.
    """
    repeat = data.get("repeat")
    rule = ReadingRule(
        repeat=None if repeat is None else _integer(repeat, "data.repeat", least=1),
        shuffle=_parse_shuffle(data.get("shuffle")),
        packing=_parse_packing(data.get("packing")),
        law=_parse_law(data.get("sources"), seed=data.get("mix_seed", 0)),
    )
    if rule.law is not None and rule.repeat is not None:
        raise ValueError("data.repeat and data.sources exclude each other")
    return rule


def _parse_packing(value: Json) -> Packing:
    for known in _PACKINGS:
        if value == known or (value is None and known == "stream"):
            return known
    raise ValueError(f"data.packing is {value!r}, not one of {', '.join(_PACKINGS)}")


def _parse_shuffle(section: Json) -> Shuffle | None:
    if section is None:
        return None
    if not isinstance(section, Mapping) or set(section) != {"group_shards", "seed"}:
        raise ValueError("data.shuffle is not {group_shards, seed}")
    return Shuffle(
        group_shards=_integer(section["group_shards"], "data.shuffle.group_shards", least=1),
        seed=_integer(section["seed"], "data.shuffle.seed", least=0),
    )


def _parse_law(sources: Json, *, seed: Json) -> MixLaw | None:
    if sources is None:
        return None
    if not isinstance(sources, Mapping) or not sources:
        raise ValueError("data.sources is not a map of names")
    weights = {str(name): _weight(source) for name, source in sources.items()}
    return MixLaw(weights, seed=_integer(seed, "data.mix_seed", least=0))


def _weight(source: Json) -> float:
    weight = source.get("weight") if isinstance(source, Mapping) else None
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < float("inf"):
        raise ValueError(f"a source of data.sources has the weight {weight!r}, not a positive number")
    return float(weight)


def _integer(value: Json, name: str, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}, not a whole number from {least} on")
    return value
