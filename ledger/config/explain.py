"""Turns what a model refuses into one clear error: where it was written, what was found, expected, and what to do."""

from __future__ import annotations

import difflib
import types
from dataclasses import dataclass, field, replace
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ledger.config.model import discriminator_of, models_in, tag_of
from ledger.config.tree import Node, deepest
from ledger.errors import ConfigError

__all__ = ["explain"]

# Where several things are wrong, the cause comes before what may follow from it.
_ORDER = ("extra_forbidden", "union_tag_invalid", "union_tag_not_found", "missing")


def explain(error: ValidationError, tree: Node, model: type[BaseModel], *, file: str | None) -> ConfigError:
    """Return the error to raise for a configuration that `model` refuses.

    `tree` is the merged configuration and `file` the file to name where nothing was written at all. Further problems
    are listed by their dotted paths.
    """
    problems = [_problem(detail, tree, model) for detail in error.errors(include_url=False)]
    problems.sort(key=lambda problem: problem.rank)
    first = _joined(problems)
    others = list(dict.fromkeys(problem.path for problem in problems if problem.path != first.path))
    advice = [first.advice] if first.advice else []
    if others:
        advice.append(f"also wrong: {', '.join(path or 'the whole' for path in others[:8])}")
    where = first.node.place
    return ConfigError(
        first.text,
        path=where.file or (file if where.override is None else None),
        place=str(where) if where.override is not None or first.is_placed else None,
        expected=first.expected,
        advice="; ".join(advice) or None,
    )


@dataclass(frozen=True, kw_only=True)
class _Problem:
    """One refusal of the model in our words."""

    path: str
    text: str
    node: Node
    is_placed: bool
    rank: int
    expected: str | None = None
    advice: str | None = None


@dataclass
class _Walk:
    """The way from the model to the place of a problem, without pydantic's marks for members of a union."""

    annotation: Any
    parts: list[str | int] = field(default_factory=list)
    owners: list[type[BaseModel]] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The dotted path, as an override would spell it."""
        return ".".join(str(part) for part in self.parts)

    @property
    def parent(self) -> str:
        """The dotted path of what holds the place."""
        return ".".join(str(part) for part in self.parts[:-1])

    def follow(self, location: tuple[str | int, ...]) -> None:
        for index, part in enumerate(location):
            self._step(part, is_last=index == len(location) - 1)

    def _step(self, part: str | int, *, is_last: bool) -> None:
        models = models_in(self.annotation)
        discriminator = discriminator_of(models)
        if discriminator and part in (tags := {tag_of(model, discriminator): model for model in models}):
            self.annotation = tags[str(part)]
            return
        owners = [model for model in models if part in model.model_fields]
        if owners:
            self._enter(part, owners[0].model_fields[str(part)].annotation, owners)
        elif isinstance(part, int) or (not models and _holds_items(self.annotation)):
            self._enter(part, _item(self.annotation), [])
        elif is_last and models:
            self._enter(part, None, models)
        # Anything else names the member of a plain union, which is no place in a file.

    def _enter(self, part: str | int, annotation: Any, owners: list[type[BaseModel]]) -> None:
        self.parts.append(part)
        self.annotation = annotation
        self.owners = owners


def _joined(problems: list[_Problem]) -> _Problem:
    """Return the first problem; where a plain union refuses a value, with what each of its members expected."""
    first = problems[0]
    expected = [
        problem.expected for problem in problems if problem.path == first.path and problem.text == first.text
    ]
    words = list(dict.fromkeys(word for word in expected if word))
    return replace(first, expected=" or ".join(words) or None)


def _problem(detail: Any, tree: Node, model: type[BaseModel]) -> _Problem:
    walk = _Walk(model)
    walk.follow(detail["loc"])
    kind = detail["type"]
    node = deepest(tree, walk.parts)
    text, expected, advice = _words(detail, walk)
    return _Problem(
        path=walk.path,
        text=text,
        node=node,
        # The top of the tree was written nowhere in particular.
        is_placed=node is not tree,
        rank=_ORDER.index(kind) if kind in _ORDER else len(_ORDER),
        expected=expected,
        advice=advice,
    )


def _words(detail: Any, walk: _Walk) -> tuple[str, str | None, str | None]:
    """Return what is wrong, what was expected and what to do."""
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown key {walk.path}", None, _nearest_key(walk)
        case "missing" if isinstance(walk.parts[-1], int):
            return f"{walk.parent} has too few items", f"at least {walk.parts[-1] + 1}", None
        case "missing":
            return f"the key {walk.path} is missing", _description(walk), f"add it, or --set {walk.path}=…"
        case "union_tag_not_found":
            key = context["discriminator"].strip("'")
            return f"{walk.path} does not say which {key} it is", _tags(walk), f"add {walk.path}.{key}"
        case "union_tag_invalid":
            key = context["discriminator"].strip("'")
            nearest = _nearest(context["tag"], context["expected_tags"].replace("'", "").split(", "))
            return f"{walk.path}.{key} is {context['tag']!r}", f"one of {context['expected_tags']}", nearest
        case "value_error" | "assertion_error":
            return f"{walk.path}: {context['error']}" if walk.path else str(context["error"]), None, None
    expected = _expected(detail["msg"])
    return f"{walk.path or 'the whole'} is {_shown(detail['input'])}", expected, _hint(detail)


def _nearest_key(walk: _Walk) -> str:
    known = [name for owner in walk.owners for name in owner.model_fields]
    parent = f"{walk.parent}." if walk.parent else ""
    nearest = difflib.get_close_matches(str(walk.parts[-1]), known, n=1)
    if nearest:
        return f"did you mean {parent}{nearest[0]}?"
    return f"known keys here: {', '.join(dict.fromkeys(known)) or 'none'}"


def _nearest(word: str, known: list[str]) -> str | None:
    nearest = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {nearest[0]}?" if nearest else None


def _description(walk: _Walk) -> str | None:
    if not walk.owners:
        return None
    text = walk.owners[0].model_fields[str(walk.parts[-1])].description
    return f"{text[0].lower()}{text[1:].removesuffix('.')}" if text else None


def _tags(walk: _Walk) -> str | None:
    models = models_in(walk.annotation)
    discriminator = discriminator_of(models)
    if discriminator is None:
        return None
    return f"one of {', '.join(repr(tag_of(model, discriminator)) for model in models)}"


def _expected(message: str) -> str:
    text = (
        message.removeprefix("Input should be ")
        .replace("an object", "a mapping")
        .replace("valid array", "list")
    )
    return text[0].lower() + text[1:] if text.startswith(("String", "Tuple", "List", "Value")) else text


def _hint(detail: Any) -> str | None:
    kind, found = detail["type"], detail["input"]
    if kind == "string_type" and isinstance(found, bool | int | float):
        return "quote it if text is meant"
    if kind == "int_type" and isinstance(found, float) and found.is_integer():
        return f"write {int(found)}"
    if kind in {"int_type", "float_type"} and isinstance(found, str) and found[:1].isdigit():
        return "write the number without quotes"
    if kind == "bool_type" and isinstance(found, str):
        return "write true or false"
    return None


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _holds_items(annotation: Any) -> bool:
    return bool(get_args(annotation)) and _item(annotation) is not None


def _item(annotation: Any) -> Any:
    """Return the type of what a list, tuple or mapping of this type holds; None if it is none of these."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return next((item for member in get_args(annotation) if (item := _item(member)) is not None), None)
    if origin in (list, tuple, set, frozenset):
        return get_args(annotation)[0]
    if origin is dict:
        return get_args(annotation)[1]
    return None
