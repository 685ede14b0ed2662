"""Who is running: this host, this boot, and whether a process still lives."""

from __future__ import annotations

import os
import re
import resource
import socket
import sys
from pathlib import Path
from typing import Final

__all__ = ["boot_id", "hostname", "is_process_alive", "peak_rss_bytes"]

_BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


def hostname() -> str:
    """Return this machine's name."""
    return socket.gethostname()


def boot_id() -> str:
    """Return the identity of this boot of the machine, or `unknown` where the system tells none."""
    try:
        return _BOOT_ID_FILE.read_text(encoding="ascii").strip() or "unknown"
    except (OSError, UnicodeError):
        return "unknown"


def is_process_alive(pid: int) -> bool:
    """Tell whether a process of this number lives on this host; one that ended but was not collected does not.

    Numbers are reused: compare the boot id, and trust the lock rather than this.
    """
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"\) Z ", status) is not None


def peak_rss_bytes() -> int:
    """Return the most memory that this process held so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
