from __future__ import annotations

from tests.support.faults_tally import TALLY


def pytest_terminal_summary(terminalreporter) -> None:
    """Print what was tried, lost and escaped."""
    if TALLY.rows:
        terminalreporter.section("faults")
        for line in TALLY.lines():
            terminalreporter.write_line(line)
