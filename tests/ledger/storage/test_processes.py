from __future__ import annotations

import os
import re
from typing import get_args

from ledger.records.fields import Time
from ledger.storage.clock import SystemClock
from ledger.storage.processes import boot_id, hostname, is_process_alive

TIME_PATTERN = next(part.pattern for part in get_args(Time)[1:] if getattr(part, "pattern", None))


def test_this_process_lives_and_no_process_has_number_zero_or_less():
    assert is_process_alive(os.getpid())
    assert not any(map(is_process_alive, (0, -1, -os.getpid(), 2**22 + 1, 2**70)))


def test_a_process_that_ended_is_not_alive_before_and_after_it_is_collected():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert not is_process_alive(child)
    os.waitpid(child, 0)
    assert not is_process_alive(child)


def test_host_and_boot_have_names():
    assert hostname()
    assert boot_id() == boot_id() != ""


def test_the_wall_clock_speaks_as_records_do():
    assert re.search(TIME_PATTERN, SystemClock().now())


def test_the_monotonic_clock_does_not_fall():
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
