"""Shows how far a long command is, on a terminal's standard error and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

__all__ = ["shown_bytes"]


@contextmanager
def shown_bytes(what: str) -> Iterator[Callable[[int], None] | None]:
    """Show a count of bytes that grows, from any thread; null where nobody looks."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn(what), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda count: bars.advance(task, count)
