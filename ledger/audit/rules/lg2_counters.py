"""LG2: the counters and what follows from them."""

from __future__ import annotations

from typing import Final

from ledger.audit.rules.base import Rule

__all__ = ["COUNTER_RULES"]

COUNTER_RULES: Final = (
    Rule(
        id="LG201",
        title="attempts = step + skipped",
        severities=("error",),
        meaning="Every attempted optimizer update either succeeded (`step`) or was skipped (`skipped`); on "
        "every line the two add up to `attempts`.",
        causes="A step was counted although its update was skipped, or the other way round.",
        advice="Count a step only when the optimizer moved. See the records reference, “Counters: the "
        "words”.",
    ),
    Rule(
        id="LG202",
        title="totals move exactly by their windows",
        severities=("error",),
        meaning="From one train event (or session start) to the next, the running totals move by exactly "
        "what the window states; when a checkpoint was captured and when the session ended nothing is "
        "outstanding. In a session that was killed, the last events may be ahead of its windows by less "
        "than one logging interval. A train event stands at every multiple of the logging interval.",
        causes="Totals were reset or doubled on resume; events were dropped or edited; a loop logs sums of "
        "its own.",
        advice="Compare the window with the totals of the named line and the line before it.",
    ),
    Rule(
        id="LG203",
        title="tokens_seen moves with microbatches",
        severities=("error",),
        meaning="Between any two lines of a session Δtokens_seen = Δmicrobatches × tokens per microbatch. "
        "Skipped attempts count, evaluation does not.",
        causes="Tokens counted per rank and called global, counted during evaluation, counted with padding, "
        "or not counted when an update was skipped.",
        advice="Advance both in one place, once per microbatch of the whole job.",
    ),
    Rule(
        id="LG204",
        title="windows of accumulation are whole",
        severities=("error",),
        meaning="In a session 0 ≤ Δmicrobatches − Δattempts × accumulation < accumulation, and exactly 0 at "
        "a train or overflow event and where a checkpoint was captured. Only the closing train event of an "
        "interrupted or failed session may hold a remainder, of a whole window at most: its attempt was "
        "never made.",
        causes="A partial accumulation at an epoch's end was dropped, padded or applied; accumulation "
        "changed.",
        advice="Let accumulation windows cross epoch ends; take checkpoints between windows only.",
    ),
    Rule(
        id="LG205",
        title="every skipped attempt has its overflow event",
        severities=("error",),
        meaning="`skipped` grows by one at each overflow event and nowhere else; `consecutive` counts the "
        "skips since the last applied update, across a resume too. An attempt skipped for a non-finite loss or norm "
        "does not state a finite one.",
        causes="Skips were not logged, or logged twice; the count of consecutive skips was lost on resume.",
        advice="Report each skipped attempt with its reason as it happens.",
    ),
    Rule(
        id="LG206",
        title="no counter falls",
        severities=("error",),
        meaning="Inside a session no running total ever falls. Across sessions they fall only to a "
        "checkpoint's values or the run's starting counters (LG302 compares with the very checkpoint that "
        "is named).",
        causes="Totals were lost or reset; a session resumed without restoring them.",
        advice="Restore the counters from the checkpoint's trainer.json.",
    ),
    Rule(
        id="LG207",
        title="applied updates and complete evaluations are finite",
        severities=("error",),
        meaning="Loss, gradient norms and rates of applied updates are finite numbers (null if and only if the "
        "window holds no update), no norm is negative or above the greatest, the mean loss of a window with one "
        "update is that update's, and a complete evaluation's loss is finite. In overflow events "
        "non-finite numbers are expected. No checkpoint captures a state whose last applied update was non-finite.",
        causes="The run diverged, or a non-finite gradient was applied instead of skipped.",
        advice="Branch from the last checkpoint before it with a lower rate, or skip non-finite gradients.",
    ),
    Rule(
        id="LG208",
        title="the learning rate is the schedule's",
        severities=("error",),
        meaning="At each train event every group's rate equals the recipe's schedule at that step, to 1e-12 "
        "of its value. The schedule's position is step × tokens per update. An unknown schedule is not "
        "checked. Where the run states its optimizer's partition, its groups are those that have a rate.",
        causes="The scheduler advanced on a skipped update or per microbatch; it restarted on resume; the "
        "horizon moved.",
        advice="Compute the rate from the step alone, before each update.",
    ),
    Rule(
        id="LG209",
        title="the loss scale follows its law",
        severities=("error",),
        meaning="Loss scale and growth tracker, on every line and in every checkpoint, are those of the recipe's "
        "law (`precision`: initial_scale, growth_factor, backoff_factor, growth_interval) replayed along the "
        "branch: an overflow backs off, so many updates in a row grow, a skip by a guard or a non-finite loss "
        "moves neither.",
        causes="A resume that forgot the scaler or its growth tracker; a scale that was set by hand; updates "
        "counted that were skipped.",
        advice="Save and restore scale and growth tracker with every checkpoint; look at the first line that "
        "differs: behind a session_start it is the resume.",
    ),
    Rule(
        id="LG210",
        title="the cursor moves by what was consumed",
        severities=("error",),
        meaning="From one train event to the next the cursor moves by the window's microbatches, through "
        "whole epochs of one length: the repeated part of the recipe, else the usable tokens of the "
        "manifest. In a mix each source moves by the microbatches that the law of the mix gives it. Where an event "
        "states digests of the live state, that of the cursor is the digest of the cursor beside it.",
        causes="A loader restarted, skipped too little or twice after a resume; prefetched batches counted "
        "as consumed; accumulation was forgotten in the fast-forward.",
        advice="Take the cursor from the reader's position behind the last consumed batch, never from the "
        "counters.",
    ),
    Rule(
        id="LG211",
        title="no batch recurs within an epoch",
        severities=("error", "missing", "hint"),
        meaning="Along the current branch no microbatch digest appears twice in one epoch of its source; two "
        "epochs of a recipe that shuffles are not read in the same order throughout; a recipe that repeats N "
        "microbatches shows exactly that repetition in every epoch. Where the dataset is at hand and its "
        "text really is the same at both places, the recurrence is a hint; where it is not at hand, a "
        "single recurrence cannot be judged (missing) and a stretch of them is an error.",
        causes="The same seed at every start replays the same batches; a loader restarted in mid-epoch; a "
        "shuffle that forgets to draw a new order. The loss then often looks better.",
        advice="Look at the two named positions; check what the loader does on resume. Give --data to tell "
        "duplicate text from a replay.",
    ),
    Rule(
        id="LG212",
        title="seconds fit into the session",
        severities=("error",),
        meaning="In each session the seconds of windows, waiting for data, evaluation and blocked checkpoints "
        "add up to no more than the elapsed time; the phases of its end are never less than those sums, and "
        "equal them where it ended `completed` or `closed`. Sums may be off by a millisecond.",
        causes="Time counted twice, such as evaluation inside a training window; throughput made up from it.",
        advice="Count every second in one phase. Rates of this session are not to be trusted.",
    ),
    Rule(
        id="LG213",
        title="parameters move if and only if the step does",
        severities=("error", "hint"),
        meaning="Between two checkpoints of which one descends from the other (or a session's start without a parent "
        "and a checkpoint) the digest of the model differs if `step` does and an update between had a rate of at least "
        "2^-27 (a smaller one may round to nothing in float32), and no later model equals an earlier one. At one and "
        "the same step no trainable parameter differs. Where the tables of tensors are at hand, some trainable "
        "parameter moved; those that never did are listed in a hint.",
        causes="The optimizer holds other parameters than the model (rebuilt or frozen after it was made); a skipped "
        "attempt moved them; old weights were loaded in mid-run; updates too small for the type of the weights.",
        advice="Compare the per-tensor digests in the two manifests: they tell which parameters moved.",
    ),
    Rule(
        id="LG214",
        title="evaluation leaves no trace",
        severities=("error",),
        meaning="The digests of all random generators before and after an evaluation are equal.",
        causes="Sampling or dropout during evaluation drew from the training generators.",
        advice="Save the generators' states before evaluating and restore them after.",
    ),
    Rule(
        id="LG215",
        title="loss tokens and clipping are consistent",
        severities=("error",),
        meaning="loss_tokens ≤ tokens_seen (equal where the recipe states `data.packing` as stream, or "
        "`data.loss_mask` as null, false or none; with `data.packing` as documents and --rehash, what the "
        "document ends in the data leave); clipped ≤ updates; clipped > 0 if and only if the greatest norm "
        "exceeds the recipe's limit.",
        causes="Norms logged after clipping; masked positions counted; clipping counted by another number "
        "than the one logged.",
        advice="Log the norm before clipping and count with the same number.",
    ),
)
