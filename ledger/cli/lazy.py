"""Commands that are imported when they are called, so that `ledger --help` costs only the command line itself."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ledger.errors import UsageError

__all__ = ["COMMANDS", "LazyGroup", "without_types"]

_C = TypeVar("_C")

COMMANDS: Final = {
    "prepare": "Prepare a corpus: text into checksummed shards (needs [data]).",
    "train": "Train, or continue, a run (needs [train]).",
    "evaluate": "Measure a checkpoint on held-out text (needs [train]).",
    "pilot": "Rehearse a recipe: overfit, acceptance, stability, resume.",
    "freeze": "Turn a passed pilot into a recipe lock; compare a configuration with one.",
    "summarize": "Say what the latest session did.",
    "reconcile": "Check every rule over all sessions: may the run be declared done?",
    "watch": "Watch a run while it goes on: progress, loss, rate, time left, findings so far.",
    "report": "Write a report of a run or pilot: one HTML page, or Markdown.",
    "list": "List the runs in a folder: how far each came and how it stands.",
    "waive": "Accept a finding of a run, with a reason, a name and an end.",
    "data": "Look at prepared datasets: documents, tokens, duplicates, what a run read.",
    "verify": "Rehash every byte of a run, a dataset or a checkpoint.",
    "seal": "Declare a run done: on a passed verdict, seal every file of it.",
    "repair": "Put right what a crash left in a run (says what it would do; --apply does it).",
    "diff": "Compare two runs: recipes, environments, data, results.",
    "explain": "Say what a rule means and what to do about a finding.",
    "schema": "Print the JSON Schema of a document or event.",
    "doctor": "Say whether runs are safe in a folder: file system, syncs, renames, locks.",
}
"""Every command and the line that `--help` shows for it; its code is in `ledger.cli.<name>`."""


class LazyGroup(TyperGroup):
    """A group whose commands live in modules of their own, each with a function `command` or commands in `group`."""

    _is_listing = False

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002
        """Return the names in the order in which a run needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | None:  # type: ignore[override]  # noqa: ARG002
        """Import a command, or stand in for it where only its one line is shown."""
        if cmd_name not in COMMANDS:
            near = get_close_matches(cmd_name, COMMANDS, n=1)
            advice = f"did you mean {near[0]}?" if near else "see ledger --help"
            raise UsageError(f"there is no command {cmd_name!r}", advice=advice)
        if self._is_listing:
            return TyperCommand(cmd_name, short_help=COMMANDS[cmd_name])
        module = importlib.import_module(f"ledger.cli.{cmd_name}")
        if hasattr(module, "group"):
            return without_types(get_command(module.group))  # type: ignore[return-value]
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(cmd_name)(module.command)
        return without_types(get_command(app))  # type: ignore[return-value]

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Show the help without importing what it lists."""
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False


def without_types(command: _C) -> _C:
    """Show arguments in the help by their names alone: the names of Python's types are of no use to a user."""
    nested_commands: dict[str, Any] = getattr(command, "commands", {})
    for nested in nested_commands.values():
        without_types(nested)
    for parameter in getattr(command, "params", ()):
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: ""  # noqa: ARG005 - typer's signature
    return command
