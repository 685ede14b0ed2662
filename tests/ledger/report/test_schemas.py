from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from ledger.audit import compare_runs, reconcile, summarize
from ledger.records.layout import LOG
from ledger.report.schemas import schema_of, schemas


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = schema_of(name)
    assert schema is not None
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", schemas())
def test_every_schema_is_one(name: str):
    jsonschema.Draft202012Validator.check_schema(schema_of(name))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["resumed", "skipping", "sparse"])
def test_every_line_of_a_log_satisfies_the_schema_of_its_kind(name: str, healthy_run: Callable[[str], Path]):
    for line in (healthy_run(name) / LOG).read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        validator(f"event.{event['event']}").validate(event)


def test_every_document_of_a_run_satisfies_the_schema_that_it_names(healthy_run: Callable[[str], Path]):
    found = set()
    for path in healthy_run("resumed").rglob("*.json"):
        document = json.loads(path.read_bytes())
        validator(document["schema"]).validate(document)
        found.add(document["schema"])
    assert found >= {
        "ledger.run",
        "ledger.recipe",
        "ledger.checkpoint",
        "ledger.trainer-state",
        "ledger.evaluation",
    }


def test_what_commands_print_satisfies_its_schema(healthy_run: Callable[[str], Path]):
    run, other = healthy_run("resumed"), healthy_run("plain")
    for document in (reconcile(run), summarize(run), compare_runs(run, other)):
        plain = json.loads(document.model_dump_json(by_alias=True))
        validator(plain["schema"]).validate(plain)


@pytest.mark.parametrize(
    "change",
    [
        {"step": "1"},
        {"step": True},
        {"step": -1},
        {"elapsed": -0.5},
        {"surprise": 1},
        {"chain": "AB" * 32},
        {"time": "yesterday"},
    ],
)
def test_a_schema_refuses_what_the_reader_refuses(
    change: dict[str, object], healthy_run: Callable[[str], Path]
):
    lines = (healthy_run("plain") / LOG).read_text(encoding="utf-8").splitlines()
    note = next(json.loads(line) for line in lines if '"event":"note"' in line)
    with pytest.raises(jsonschema.ValidationError):
        validator("event.note").validate(note | change)


def test_an_unknown_schema_is_none():
    assert schema_of("event.surprise") is None
    assert schema_of("train") is not None
