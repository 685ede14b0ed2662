"""The entry point: hands over what belongs to other packages, and turns every error into one line and an exit code."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from ledger import __version__
from ledger.cli.lazy import LazyGroup
from ledger.cli.screen import PROGRAM, guard
from ledger.errors import UsageError

__all__ = ["app", "main"]

HANDED_OVER: Final = {
    "prepare": ("data_prep", "tokenizers", "data"),
    "train": ("trainer", "torch", "train"),
    "evaluate": ("trainer", "torch", "train"),
}
"""Command → (package that does it, module that must be installed, extra that installs it)."""

app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The run ledger for language-model training.",
)


def _print_version(is_asked: bool) -> None:  # noqa: FBT001 - typer's signature
    if is_asked:
        typer.echo(f"ledger {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; without arguments as a program, with those it was called with."""
    if arguments is None:  # the process is ours: a reader that goes away ends it quietly
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    given = list(sys.argv[1:] if arguments is None else arguments)
    return guard(lambda: _run(given))


def _run(arguments: list[str]) -> None:
    if arguments and arguments[0] in HANDED_OVER:
        _hand_over(arguments[0], arguments[1:])
    try:
        app(arguments, prog_name="ledger")
    except SystemExit as end:
        if end.code == UsageError.exit_code:
            _hint_at_dashes(arguments)
        raise


def _hint_at_dashes(arguments: list[str]) -> None:
    """Say how to give a path that looks like an option."""
    named = next((word for word in arguments if word.startswith("-") and os.path.lexists(word)), None)
    if named is not None and "--" not in arguments:
        how = f"ledger {arguments[0]} -- {ascii(named)[1:-1]}"
        sys.stderr.write(f"a path that begins with - goes behind a lone --: {how}\n")


def _hand_over(command: str, arguments: list[str]) -> None:
    """Become the process that does it. The arguments go over untouched, a lone `--` included."""
    package, needed, extra = HANDED_OVER[command]
    if importlib.util.find_spec(needed) is None:
        raise UsageError(
            f"ledger {command} needs the package {needed}, which is not installed",
            advice=f"pip install 'pilot-ledger[{extra}]'",
        )
    sys.stdout.flush()
    words = [sys.executable, "-P", "-m", package, command, *arguments]
    os.execve(sys.executable, words, os.environ | {PROGRAM: "ledger"})  # noqa: S606 - ours
