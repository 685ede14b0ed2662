"""From files and overrides to one validated configuration, and back to a file."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from ledger.config.document import read_file, read_override
from ledger.config.explain import explain
from ledger.config.merge import merge
from ledger.config.tree import Node, Place, deepest, plain, tree_of
from ledger.errors import ConfigError

__all__ = ["dump_config", "file_of", "load_config"]

Model = TypeVar("Model", bound=BaseModel)

RECORDED = "the recorded recipe"
"""What stands in the place of a file's name where a configuration goes on from a run's records."""

_LOGGER = logging.getLogger(__name__)
_EXPANDABLE = re.compile(r"\$\{\w+\}|\$\(|^~/|^\$\w+")
# Words that every reader of YAML takes for text; everything else is written in quotes.
_SAFE_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_NOT_SAFE = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def load_config(
    paths: Sequence[str | os.PathLike[str]],
    overrides: Iterable[str] = (),
    *,
    model: type[Model],
    base: Mapping[str, Any] | None = None,
    apart: Collection[str] = (),
    only: str | None = None,
) -> Model:
    """Return the configuration that the files and `dotted.key=value` overrides describe together.

    Files come first, in order, then the overrides; later wins, mappings merge, lists are replaced, and a section whose
    discriminator changes starts afresh. `base` is a recorded configuration that comes before all of them. Sections in
    `apart`, or all but `only` that one, are somebody else's and left to them. The model sees only the merged whole.
    Raises `ConfigError` (one problem, its place, what was expected and what to do) and
    `StorageError` for a file that cannot be read.
    """
    if not all(os.fspath(path) for path in paths):
        raise ConfigError("an empty path is given for a configuration", advice="check --config")
    recorded = [] if base is None else [tree_of(base, Place(file=RECORDED))]
    trees = recorded + [read_file(Path(path)) for path in paths] + [read_override(text) for text in overrides]
    # Where a key is missing, the last file is the one to write it into.
    last = str(Path(paths[-1])) if paths else None
    merged = Node({}, Place(file=last))
    for tree in trees:
        merged = merge(merged, _less(tree, apart=apart, only=only), [model])
    _warn_unexpanded(merged, prefix="")
    try:
        # As JSON, so that a list is what a tuple needs and a text what a path needs, in strict mode too.
        return model.model_validate_json(json.dumps(plain(merged)), strict=True)
    except ValidationError as error:
        raise explain(error, merged, model, file=last) from error


def file_of(
    paths: Sequence[str | os.PathLike[str]], key: Sequence[str], *, model: type[BaseModel]
) -> Path | None:
    """Return the file that says last what a key is, so that a path in it can be taken relative to that file."""
    merged = Node({}, Place())
    for path in paths:
        merged = merge(merged, _less(read_file(Path(path)), apart=(), only=key[0]), [model])
    file = deepest(merged, key).place.file
    return None if file is None else Path(file)


def _less(tree: Node, *, apart: Collection[str], only: str | None) -> Node:
    if not isinstance(tree.value, dict):
        return tree
    kept = {key: child for key, child in tree.value.items() if key not in apart and only in (None, key)}
    return Node(kept, tree.place)


def dump_config(config: BaseModel) -> str:
    """Return the complete configuration as YAML that `load_config` reads on its own, to an equal model."""
    writer = YAML()
    writer.Representer = _Representer
    writer.default_flow_style = False
    # Never fold a long text.
    writer.width = 2**20
    stream = io.StringIO()
    writer.dump(_quoted(config.model_dump(mode="json", by_alias=True)), stream)
    return stream.getvalue()


class _Representer(RoundTripRepresenter):
    """Writes null as a word: an empty place reads like something forgotten."""

    def represent_none(self, data: None) -> ScalarNode:  # noqa: ARG002 (the signature is the library's)
        return self.represent_scalar("tag:yaml.org,2002:null", "null")


_Representer.add_representer(type(None), _Representer.represent_none)


def _warn_unexpanded(node: Node, *, prefix: str) -> None:
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            _warn_unexpanded(child, prefix=f"{prefix}.{key}" if prefix else key)
    elif isinstance(node.value, list):
        for child in node.value:
            _warn_unexpanded(child, prefix=prefix)
    elif isinstance(node.value, str) and _EXPANDABLE.search(node.value):
        _LOGGER.warning("%s: %r is taken literally; variables and ~ are not expanded", prefix, node.value)


def _quoted(value: Any) -> Any:
    """Wrap every text that some reader of YAML could take for something else."""
    if isinstance(value, dict):
        return {_quoted(key): _quoted(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_quoted(child) for child in value]
    if isinstance(value, str) and not (_SAFE_WORD.fullmatch(value) and value.lower() not in _NOT_SAFE):
        return DoubleQuotedScalarString(value)
    return value
