"""What a configuration is made of: strict models whose leaves say which class of a recipe they belong to."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from ledger.records.documents import LeafClass

__all__ = [
    "LeafClass",
    "StrictModel",
    "discriminator_of",
    "leaf",
    "leaf_classes",
    "models_in",
    "require_leaf_classes",
    "tag_of",
]

_UNIONS = (Union, types.UnionType)


class StrictModel(BaseModel):
    """Base of every configuration section: nothing is converted, nothing unknown is accepted, nothing changes.

    A whole number is accepted for a float and stored as one; `true` is never a number; floats are finite.
    The docstring under a field is its description.
    """

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


def leaf(leaf_class: LeafClass, default: Any = ..., **constraints: Any) -> Any:
    """Return a pydantic field of that class in a recipe; without `default` it is required.

    `constraints` are those of `pydantic.Field` (`ge=0`, `description=…`, `default_factory=…`).
    """
    if "default_factory" in constraints:
        return Field(json_schema_extra={"class": leaf_class}, **constraints)
    return Field(default, json_schema_extra={"class": leaf_class}, **constraints)


def leaf_classes(config: BaseModel) -> dict[str, LeafClass]:
    """Return the dotted path of every leaf of `config` with its class, in the order of the fields.

    A section is no leaf but what it holds is, and so it is with a mapping of names to sections; a list or another
    mapping is one leaf, and so is a section that is null.
    Raises `TypeError` for a leaf without a class.
    """
    return dict(_leaves(config, prefix=""))


def require_leaf_classes(model: type[BaseModel]) -> None:
    """Raise `TypeError` if a leaf of `model`, or of any section that it may hold, has no class.

    Call it where a recipe's model is defined, so that a forgotten class is found before a run is.
    """
    for name, field in model.model_fields.items():
        sections = models_in(field.annotation)
        for section in (*sections, *_named_models_in(field.annotation)):
            require_leaf_classes(section)
        if not sections or _may_be_null(field.annotation):
            _class_of(field, f"{model.__name__}.{name}")


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that a value of this type may be: one, the members of a union, or none.

    What a list or mapping holds is not looked at: these are replaced as a whole.
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) is Annotated:
        return models_in(get_args(annotation)[0])
    if get_origin(annotation) in _UNIONS:
        return [model for member in get_args(annotation) for model in models_in(member)]
    return []


def discriminator_of(models: list[type[BaseModel]]) -> str | None:
    """Return the field whose fixed value tells these models apart; None if there is none, or only one model."""
    if len(models) < 2:
        return None
    for name in models[0].model_fields:
        if all(_is_literal(model.model_fields.get(name)) for model in models):
            return name
    return None


def tag_of(model: type[BaseModel], discriminator: str) -> str:
    """Return the value of `discriminator` that chooses `model`."""
    return cast("str", get_args(model.model_fields[discriminator].annotation)[0])


def _leaves(config: BaseModel, *, prefix: str) -> Iterator[tuple[str, LeafClass]]:
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        path = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from _leaves(value, prefix=f"{path}.")
        elif isinstance(value, dict) and value and _named_models_in(field.annotation):
            for key, section in value.items():
                yield from _leaves(section, prefix=f"{path}.{key}.")
        else:
            yield path, _class_of(field, path)


def _named_models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that the values of a mapping of this type may be."""
    if get_origin(annotation) in _UNIONS:
        return [model for member in get_args(annotation) for model in _named_models_in(member)]
    return models_in(get_args(annotation)[1]) if get_origin(annotation) is dict else []


def _class_of(field: FieldInfo, path: str) -> LeafClass:
    extra = field.json_schema_extra
    found = extra.get("class") if isinstance(extra, dict) else None
    if found not in get_args(LeafClass):
        raise TypeError(f"{path} has no class; declare it with leaf({' | '.join(get_args(LeafClass))})")
    return cast("LeafClass", found)


def _may_be_null(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _may_be_null(get_args(annotation)[0])
    return get_origin(annotation) in _UNIONS and type(None) in get_args(annotation)


def _is_literal(field: FieldInfo | None) -> bool:
    return field is not None and get_origin(field.annotation) is Literal
