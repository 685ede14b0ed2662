"""Merging of configuration trees: later wins, mappings merge recursively, lists are replaced.

A section whose discriminator (`schedule.name`) changes starts afresh: what was said about the old kind does not
apply to the new one.
"""

from __future__ import annotations

from pydantic import BaseModel

from ledger.config.model import discriminator_of, models_in, tag_of
from ledger.config.tree import Node, places
from ledger.errors import ConfigError

__all__ = ["merge"]


def merge(base: Node, over: Node, models: list[type[BaseModel]]) -> Node:
    """Return `base` overridden by `over`; `models` are those that the value may be.

    Raises `ConfigError` if an override of the command line would be lost because a later one starts its section afresh.
    """
    if not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    discriminator = discriminator_of(models)
    if discriminator is not None and _changes(base.value, over.value, discriminator):
        _refuse_lost_overrides(base, over, discriminator)
        return over
    chosen = _chosen({**base.value, **over.value}, models, discriminator)
    merged = dict(base.value)
    for key, child in over.value.items():
        merged[key] = merge(merged[key], child, _models_at(chosen, key)) if key in merged else child
    return Node(merged, over.place)


def _changes(base: dict[str, Node], over: dict[str, Node], key: str) -> bool:
    return key in base and key in over and base[key].value != over[key].value


def _refuse_lost_overrides(base: Node, over: Node, discriminator: str) -> None:
    for place in places(base):
        if place.override is not None and over.place.override is not None:
            raise ConfigError(
                f"a later --set changes {discriminator!r}, which starts its section afresh and would drop this one",
                place=str(place),
                advice=f"put the --set of {discriminator!r} first",
            )


def _chosen(
    section: dict[str, Node], models: list[type[BaseModel]], discriminator: str | None
) -> list[type[BaseModel]]:
    """Return the models that the section may still be, now that its discriminator is known."""
    if discriminator is None or discriminator not in section:
        return models
    tag = section[discriminator].value
    return [model for model in models if tag_of(model, discriminator) == tag]


def _models_at(models: list[type[BaseModel]], key: str) -> list[type[BaseModel]]:
    fields = [model.model_fields[key] for model in models if key in model.model_fields]
    return [model for field in fields for model in models_in(field.annotation)]
