"""Writes docs/reference/settings.md from the trainer's configuration; `--check` only tells whether they agree."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from trainer.config import TrainerConfig

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"

_HEAD: Final = """# Settings of a training run

Generated from `trainer/config` by `tools/settings_page.py`. Of the classes, `identity` is what defines the experiment
and is refused on resume, `operational` may change and is recorded as an amendment, `volatile` is free.
[How settings are written](../how-to/configure.md).
"""
_BOUNDS: Final = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}

Schema = Mapping[str, Any]


def settings_page() -> str:
    """Return the page: a table for each section, in the order of the configuration."""
    schema = TrainerConfig.model_json_schema()
    sections = [
        section
        for name, value in schema["properties"].items()
        for section in _sections(name, value, schema["$defs"])
    ]
    return "\n".join([_HEAD, *sections])


def _sections(path: str, value: Schema, definitions: Schema) -> Iterator[str]:
    """Yield the table of a section, one for each kind it may be of, and then those of the sections inside it."""
    for model in _models(value, definitions):
        kind = model["properties"].get("name", {}).get("const")
        title = f"{path}, {kind}" if kind and "oneOf" in value else path
        yield f"## {title}\n\n{model['description']}\n"
        inner = {name: field for name, field in model["properties"].items() if _models(field, definitions)}
        leaves = {name: field for name, field in model["properties"].items() if name not in inner}
        if leaves:
            yield "| setting | value | default | class | meaning |\n|---|---|---|---|---|"
            for name, field in leaves.items():
                yield _row(f"{path}.{name}", field, is_required=name in model.get("required", ()))
            yield ""
        for name, field in inner.items():
            is_map = any("patternProperties" in choice for choice in _choices(field))
            yield from _sections(f"{path}.{name}{'.NAME' * is_map}", field, definitions)


def _models(value: Schema, definitions: Schema) -> list[Schema]:
    """Return the models that a field may hold: of a union all, of a map that of its values."""
    if "$ref" in value:
        return [definitions[value["$ref"].rpartition("/")[2]]]
    inner = [*value.get("patternProperties", {}).values(), *_choices(value)]
    return [model for choice in inner for model in _models(choice, definitions)]


def _choices(value: Schema) -> Sequence[Schema]:
    choices: Sequence[Schema] = value.get("oneOf", value.get("anyOf", ()))
    return choices


def _row(path: str, field: Schema, *, is_required: bool) -> str:
    default = "required" if is_required else f"`{json.dumps(field['default'])}`"
    meaning = " ".join(field["description"].split())
    return f"| `{path}` | {_kind(field)} | {default} | {field['class']} | {meaning} |"


def _kind(field: Schema) -> str:
    """Return in words what a field takes."""
    if "anyOf" in field:
        return " or ".join(_kind(choice) for choice in field["anyOf"])
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field["type"] == "array":
        return f"list of {_kind(field['items'])}"
    bounds = [f"{sign} {field[key]}" for key, sign in _BOUNDS.items() if key in field]
    return " ".join([field["type"], *bounds])


def main() -> int:
    """Return 0 if the page agrees with the configuration, or was made to."""
    page = settings_page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    if "--check" in sys.argv[1:]:
        print("settings.md is not as the configuration says; run tools/settings_page.py", file=sys.stderr)
        return 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
