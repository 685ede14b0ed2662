"""The command line: one module a command, which parses, calls one function and renders. The only place that prints."""

from ledger.cli.main import main

__all__ = ["main"]
