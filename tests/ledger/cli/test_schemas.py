"""Whatever a command prints with --json is what a published schema says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ledger.cli import main
from ledger.report.schemas import schema_of, schemas
from tests.ledger.audit.conftest import healthy_run

__all__ = ["healthy_run"]

pytestmark = pytest.mark.slow

COMMANDS = {
    "summarize RUN": "ledger.summary",
    "reconcile RUN": "ledger.verdict",
    "reconcile RUN --rehash --control OTHER": "ledger.verdict",
    "verify RUN": "ledger.verdict",
    "verify OTHER/checkpoints/step-00000003-s01": "ledger.verdict",
    "verify DATA": "ledger.verdict",
    "diff RUN OTHER": "ledger.comparison",
    "list FOLDER": "ledger.listing",
    "explain LG306": "output.explain",
    "repair RUN": "output.repair",
    "doctor FOLDER": "output.doctor",
    "watch RUN --once": "output.watch",
    "data show DATA --run RUN": "output.data-show",
    "seal RUN": "output.seal",
    "seal RUN --attest": "output.seal",
    "seal BROKEN": "ledger.verdict",
}


@pytest.fixture(scope="module")
def place(healthy_run: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Runs and a dataset by the words that stand for them."""
    folder = tmp_path_factory.mktemp("place")
    for name in ("on_dataset", "resumed", "interrupted"):
        shutil.copytree(healthy_run(name), folder / name)
    shutil.copytree(healthy_run("on_dataset").with_name("on_dataset-data"), folder / "on_dataset-data")
    return {
        "RUN": str(folder / "on_dataset"),
        "DATA": str(folder / "on_dataset-data"),
        "OTHER": str(folder / "resumed"),
        "BROKEN": str(folder / "interrupted"),
        "FOLDER": str(folder),
    }


def printed(words: str, place: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Any:
    arguments = []
    for word in words.split():
        head, slash, rest = word.partition("/")
        arguments.append(place.get(head, head) + slash + rest)
    capsys.readouterr()
    main([*arguments, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("words", "name"), COMMANDS.items(), ids=COMMANDS.keys())
def test_what_is_printed_is_what_the_schema_says(
    words: str, name: str, place: dict[str, str], capsys: pytest.CaptureFixture[str]
):
    found = printed(words, place, capsys)
    schema = schema_of(name)
    assert schema is not None
    jsonschema.Draft202012Validator(schema).validate(found)
    required = set(schema.get("required", ()))
    assert required
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate({})


def test_every_rule_and_every_schema_is_printed(capsys: pytest.CaptureFixture[str]):
    main(["explain", "--json"])
    rule = jsonschema.Draft202012Validator(schema_of("output.explain") or {})
    for found in json.loads(capsys.readouterr().out).values():
        rule.validate(found)
    main(["schema", "--json"])
    assert json.loads(capsys.readouterr().out).keys() == set(schemas())
