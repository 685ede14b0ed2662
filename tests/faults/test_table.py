"""Every known fault of file systems and hosts (F) and of a log's end (E) has a test, or a reason why it has none."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEAM = "tests/faults/test_seam.py::test_no_fault_at_any_operation_does_harm"
CALLS = "tests/faults/test_system_calls.py::test_no_failing_call_loses_anything"
HOST, PROCESSES, TAILS = (
    "tests/faults/test_host.py",
    "tests/faults/test_processes.py",
    "tests/faults/test_tails.py",
)
ENDS = f"{TAILS}::test_the_end_of_a_log"

HOSTS: dict[str, list[str]] = {
    "F01 ENOSPC at each call": [
        SEAM,
        CALLS,
        "tests/faults/test_mounts.py::test_a_run_outlives_a_disk_that_is_full_at_any_page",
    ],
    "F02 EDQUOT": [SEAM],
    "F03 EIO on write": [SEAM, CALLS],
    "F04 EIO on sync and close, no retry": [
        SEAM,
        CALLS,
        "tests/faults/test_storage_faults.py::test_no_acknowledged_event_is_lost_and_the_log_stays_poisoned",
    ],
    "F05 short write": [SEAM],
    "F06 EINTR": [SEAM, "tests/faults/test_system_calls.py::test_an_interrupted_write_is_completed"],
    "F07 turns read-only": [SEAM],
    "F08 chattr +i, +a": [
        f"{HOST}::test_an_immutable_folder_takes_no_session_and_loses_nothing",
        f"{HOST}::test_a_log_that_may_only_grow_is_appended_to",
        "tests/ledger/maintain/test_repair.py::test_a_log_that_may_only_grow_is_not_cut_and_the_reason_is_told",
    ],
    "F09 rename EXDEV, EACCES": [
        f"{HOST}::test_a_refused_rename_keeps_the_old_file_and_leaves_nothing_behind"
    ],
    "F10 folder sync EINVAL, ENOTSUP": [
        f"{HOST}::test_folders_that_cannot_be_synced_are_a_warning_and_no_error",
        f"{HOST}::test_a_folder_whose_sync_fails_is_an_error",
    ],
    "F11 EMFILE": [SEAM],
    "F12 no memory": [
        SEAM,
        f"{PROCESSES}::test_a_run_that_is_out_of_memory_anywhere_loses_nothing",
        f"{PROCESSES}::test_a_run_that_the_kernel_kills_for_its_memory_loses_nothing",
    ],
    "F13 SIGKILL": [
        CALLS,
        f"{PROCESSES}::test_killed_at_many_random_moments_nothing_acknowledged_is_lost",
        "tests/faults/test_soak.py::test_training_that_is_killed_again_and_again_ends_as_if_it_never_was",
    ],
    "F14 stopped holder": [f"{PROCESSES}::test_a_stopped_holder_keeps_its_lock_and_is_named"],
    "F15 forked child outlives its parent": [
        f"{PROCESSES}::test_a_forked_child_that_outlives_its_parent_holds_and_writes_nothing"
    ],
    "F16 lock removed or replaced": [
        f"{PROCESSES}::test_a_lock_that_was_removed_or_replaced_is_noticed",
        f"{PROCESSES}::test_a_lock_file_that_is_removed_lets_no_second_writer_in",
    ],
    "F17 network file system": [
        "tests/ledger/storage/test_mounts.py::test_kinds_are_classified",
        "tests/faults/test_network.py::test_preparing",
        "tests/faults/test_network.py::test_training",
    ],
    "F18 moved": [f"{HOST}::test_a_run_that_is_moved_meanwhile_goes_on_where_it_lies_now"],
    "F19 deleted": [f"{HOST}::test_a_run_that_is_deleted_meanwhile_is_an_error_at_the_next_event"],
    "F20 replaced by an editor": [f"{HOST}::test_a_log_that_something_else_changes_is_written_no_further"],
    "F21 copy without its last blocks": [
        f"{TAILS}::test_a_copy_that_lacks_the_last_blocks_is_torn_or_a_loss_by_its_pins"
    ],
    "F23 suspend, clock": [
        f"{HOST}::test_a_wall_clock_that_jumps_decides_nothing",
        f"{HOST}::test_a_suspended_machine_only_costs_time",
    ],
    "F24 backup older than its anchor": [f"{TAILS}::test_a_log_rolled_back_behind_newer_records_is_a_loss"],
    "F25 leftovers of a thousand crashes": [
        f"{HOST}::test_a_thousand_crashes_leave_what_only_a_repair_removes"
    ],
    "F26 forbidden": [f"{HOST}::test_what_is_forbidden_to_a_user_is_an_error_and_loses_nothing"],
}
"""Row → the tests that hold it."""

LOG_ENDS: dict[str, list[str]] = {
    "E01 absent": [f"{TAILS}::test_an_absent_log_is_missing_and_never_begun_anew"],
    "E02 empty": [f"{TAILS}::test_an_empty_log_that_nothing_pins_is_begun", ENDS],
    "E04 no last newline": [ENDS],
    "E05 last newline of a pinned line": [f"{TAILS}::test_a_flipped_last_newline_of_a_pinned_line_is_a_loss"],
    "E06 NULs at the end": [ENDS],
    "E08 NULs in the middle": [ENDS],
    "E09 blank lines": [ENDS],
    "E12 a line left out": [ENDS],
    "E17 cut before a pin": [ENDS],
    "E18 cut behind every pin": [ENDS, f"{TAILS}::test_what_stands_beside_an_anchor_is_told"],
    "E42 grows while it is read": [
        f"{HOST}::test_a_log_that_grows_while_it_is_read_is_judged_as_far_as_it_reached"
    ],
    "E48 many lines": [f"{TAILS}::test_reading_grows_no_faster_than_the_log"],
    "E50 rolled back": [
        f"{TAILS}::test_a_log_rolled_back_behind_newer_records_is_a_loss",
        f"{TAILS}::test_a_run_rolled_back_as_a_whole_goes_on",
    ],
}

UNTESTED = {
    "F22 names that differ only by case": "takes a disk that folds case; tests/ledger/storage/test_mounts.py tries "
    "one where it can be made",
}
"""Row → why this suite cannot always test it."""


def test_every_row_is_here():
    rows = {name.split()[0] for name in (*HOSTS, *UNTESTED)}
    assert rows == {f"F{number:02d}" for number in range(1, 27)}
    assert all(UNTESTED.values())
    assert not HOSTS.keys() & UNTESTED.keys()


@pytest.mark.parametrize("row", [*HOSTS, *LOG_ENDS])
def test_the_tests_of_a_row_exist(row):
    tests = (HOSTS | LOG_ENDS)[row]
    assert tests
    for test in tests:
        path, _, name = test.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in names, f"{test} does not exist"
