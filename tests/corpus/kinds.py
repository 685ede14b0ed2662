"""The kinds of faults that people report of real trainers and trackers, each with the broken runs that show it.

A case is a function of `tests/corpus/runs`, or one of the faulty loaders of `tests/ledger/audit/test_loader_faults.py`,
which train a small run themselves.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """Where a kind of fault is shown."""

    cases: tuple[str, ...] = ()
    reason: str = ""
    """Why no record can show it."""


def shown_by(*cases: str) -> Kind:
    """Return a kind that these cases show."""
    return Kind(cases)


KINDS = {
    # Position in the data.
    "the loader restarts, skips too little or skips twice after a resume": shown_by(
        "RestartsAtTheBeginning",
        "SkipsOneTooFew",
        "SkipsTwice",
        "UnawareOfSkipping",
        "UnawareOfSkippingTwice",
        "the_cursor_jumps",
        "a_stretch_of_batches_recurs",
    ),
    "only later epochs, an epoch's end or the second resume are wrong": shown_by(
        "LosesTheEpoch", "SkipsAnEpochAtItsEnd", "WrongAtTheSecondResume", "UnawareOfEpochs"
    ),
    "prefetched batches are counted as consumed, or lost": shown_by(
        "CountsWhatWasFetched", "LosesWhatWasFetched", "CountsTwice"
    ),
    "accumulation is forgotten in the fast-forward": shown_by("ForgetsAccumulation", "UnawareOfAccumulation"),
    "the same seed at every start replays the same batches": shown_by(
        "UnawareOfRestart", "ReadsEpochsInOneOrder", "a_shuffled_epoch_is_read_as_the_one_before"
    ),
    # Optimizer, schedule, scaler.
    "the gradient scaler or its growth tracker is not saved": shown_by(
        "a_growth_tracker_that_was_forgotten", "a_scale_that_no_law_gives"
    ),
    "the schedule advances on a skipped update or per microbatch": shown_by(
        "a_schedule_that_counts_skipped_attempts", "a_rate_off_the_schedule"
    ),
    "the rate is back at its initial value after a resume": shown_by(
        "a_rate_that_starts_anew_after_the_resume"
    ),
    "a new horizon bends the schedule": shown_by(
        "a_rate_bent_by_a_longer_warm_up_after_the_resume", "the_second_session_has_another_identity"
    ),
    "master weights are rebuilt from low precision": shown_by(
        "master_weights_that_were_made_of_the_rounded_ones",
        "the_first_redone_update_is_equal_and_the_second_is_not",
    ),
    # What step and tokens mean.
    "a step is counted although its update was skipped": shown_by(
        "a_step_was_counted_though_its_update_was_skipped", "an_optimizer_that_counted_a_skipped_attempt"
    ),
    "partial accumulation is dropped, doubled or mis-scaled": shown_by(
        "a_window_is_cut_in_superseded_work", "a_dropped_tail_in_one_epoch_only"
    ),
    "tokens are counted per rank, twice, with padding or during evaluation": shown_by(
        "tokens_of_one_rank_of_two", "a_token_too_many_on_the_branch", "evaluation_tokens_that_count"
    ),
    "totals are lost or reset on a resume": shown_by("totals_that_start_from_zero_after_the_resume"),
    # Logs.
    "points below the last step are dropped, kept twice or overwritten": shown_by(
        "superseded_points_were_dropped",
        "a_point_dropped_and_its_window_given_to_the_next",
        "points_that_were_kept_twice",
        "lines_overwritten_in_place",
    ),
    "the old file is deleted": shown_by("the_old_log_was_deleted"),
    "the last records are lost when the process is killed": shown_by(
        "the_log_is_cut_behind_a_checkpoint", "a_killed_session_is_ahead_of_its_interval"
    ),
    "appending to a torn line glues two records": shown_by("two_lines_in_one"),
    "one flipped bit ends the reading in silence": shown_by("a_flipped_bit_early_and_another_late"),
    # Checkpoints.
    "a half-written checkpoint is picked up": shown_by(
        "a_folder_without_a_manifest", "a_file_of_a_checkpoint_is_gone", "a_temporary_folder_of_a_crash"
    ),
    "a pointer, a time or a name's order decides which is the latest": shown_by(
        "automatically_from_an_older_checkpoint",
        "a_foreign_file_among_the_checkpoints",
        "a_link_named_like_a_checkpoint",
    ),
    "a stale buffer is saved": shown_by("weights_of_the_parent_after_three_more_updates"),
    "parameters of one step stand with the optimizer of another": shown_by("a_model_of_another_step"),
    "there is no final checkpoint, or one at the wrong step": shown_by(
        "the_final_checkpoint_was_pruned", "completed_short_of_the_target"
    ),
    # Randomness and evaluation.
    "evaluation moves the training generators": shown_by("an_evaluation_moves_a_generator"),
    "evaluation leaves the model in another mode": Kind(
        reason="A mode leaves no digest of its own; what it changes shows as losses that differ from a control (LG803)."
    ),
    "generators are restored of some ranks only, or too late": shown_by(
        "a_generator_was_not_restored", "another_number_of_generators"
    ),
    # Recipe.
    "geometry, horizon, precision or data change on a resume": shown_by(
        "more_replicas_in_the_second_session",
        "the_second_session_has_another_identity",
        "the_second_session_reads_other_data",
        "an_amendment_that_the_recipes_do_not_show",
    ),
    "a folder silently starts afresh or silently resumes": shown_by("a_second_session_starts_silently"),
    # Status.
    "finished is inferred from how the process ended": shown_by(
        "the_end_is_missing", "completed_short_of_the_target"
    ),
    "a resume at the target trains nothing and reports success": shown_by(
        "a_session_at_the_target_that_calls_itself_completed", "a_session_without_update_is_not_closed"
    ),
    "throughput divides all tokens by one session's time": Kind(
        reason="Rates are not recorded but computed from windows; the tests of summaries divide by the session's own."
    ),
    "a filter hides a diverged run in the mean, or the field vanishes": shown_by(
        "a_mean_that_hides_a_norm_that_is_not_a_number", "a_loss_that_vanishes_where_it_is_not_a_number"
    ),
}
