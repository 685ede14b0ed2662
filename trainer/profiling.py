"""A window of updates under torch's profiler, its trace in the run's `logs/` for a person to open.

Starting, stopping and writing count as phase `profile`; the updates themselves stay training, slowed as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ledger.records.layout import LOGS
from ledger.storage.files import ensure_folder
from trainer.config import ProfilerConfig

if TYPE_CHECKING:
    from torch.profiler import profile

__all__ = ["Profiling"]


class Profiling:
    """Profiles the updates that the recipe names, once a session; does nothing where it names none."""

    def __init__(self, config: ProfilerConfig | None, run_dir: Path) -> None:
        self._config = config
        self._run_dir = run_dir
        self._running: profile | None = None

    def is_due(self, step: int) -> bool:
        """Tell whether the profiler must start or stop after so many updates."""
        if self._config is None:
            return False
        first = self._config.start_step - 1
        if self._running is None:
            return step == first
        return step >= first + self._config.steps

    def switch(self, *, step: int, session: int) -> Path | None:
        """Start the profiler, or stop it and return the trace that it wrote."""
        if self._running is None:
            from torch.profiler import profile  # noqa: PLC0415 (loads much that a run without it never needs)

            self._running = profile(profile_memory=True)
            self._running.start()
            return None
        running, self._running, self._config = self._running, None, None
        running.stop()
        ensure_folder(self._run_dir / LOGS)
        trace = self._run_dir / LOGS / f"profile-step-{step:08d}-s{session:02d}.json"
        running.export_chrome_trace(str(trace))
        return trace

    def close(self) -> None:
        """Stop a profiler that still runs and drop what it saw."""
        if self._running is not None:
            self._running.stop()
            self._running = None
