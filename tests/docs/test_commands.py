"""Every command line that the pages on pilots show is one that the program understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML
from typer.main import get_command

from ledger.cli.main import app
from ledger.pilot.config import StageSection
from ledger.pilot.gates import DEFAULT_GATES, gates_of
from trainer.cli import app as trainer_app

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/how-to/decide-and-freeze.md"
HANDED_OVER = ("train", "evaluate")


def command_lines() -> list[str]:
    pages = [PAGE.read_text(encoding="utf-8"), (ROOT / "README.md").read_text(encoding="utf-8")]
    blocks = [block for page in pages for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL)]
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ledger ")]
    return [line for line in lines if not line.startswith("ledger prepare ")]


@pytest.mark.parametrize("line", sorted(set(command_lines())))
def test_the_command_line_is_understood(line: str):
    _, name, *arguments = shlex.split(line)
    group: Any = get_command(trainer_app if name in HANDED_OVER else app)
    with typer.Context(group) as context:
        command = group.get_command(context, name)
        command.make_context(name, arguments, parent=context)


def test_the_pages_go_from_the_pilot_to_the_seal():
    for text in (PAGE.read_text(encoding="utf-8"), (ROOT / "README.md").read_text(encoding="utf-8")):
        place = 0
        for step in ("pilot", "freeze", "train --recipe", "reconcile", "seal"):
            place = text.index(f"$ ledger {step}", place)


def test_every_stage_with_defaults_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| {stage} |" in text for stage in DEFAULT_GATES)


def test_the_yaml_on_the_page_is_a_section_of_a_pilot():
    block = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    section = YAML(typ="safe").load(block.group(1))["pilot"]["stability"]
    gates = gates_of("stability", StageSection.model_validate(section).gates)
    assert gates["late_clipping"] is None
    assert {"loss_drop", "calm_end", "spike_share"} <= gates.keys()
