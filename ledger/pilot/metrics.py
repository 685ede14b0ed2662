"""Every metric that a gate can name: what it is, and what to think of when it misses its bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ledger.pilot import numbers, recipe_numbers
from ledger.pilot.measure import RunMeasurements
from ledger.pilot.numbers import Measure, Value
from ledger.records.documents import Verdict

__all__ = ["DIAGNOSTIC", "METRICS", "Evidence", "Metric", "is_metric", "metric_named"]

DIAGNOSTIC: Final = "diagnostics-"
"""How the name of a metric begins that is a diagnostic of the train events."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the metrics of a stage are read from."""

    run: RunMeasurements | None = None
    verdict: Verdict | None = None
    """Of the run, compared with its control where the stage has one."""
    others: Mapping[str, Value] = field(default_factory=dict)
    """What the stage measured itself, by the metric's name."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric by its name."""

    what: str
    """What it is, with its unit."""
    advice: str
    """What to think of, and do, where it misses its bound."""
    of_run: Measure | None = None
    of_verdict: Callable[[Verdict], Value] | None = None
    """Where neither is given, the stage measures it itself."""


def is_metric(name: str) -> bool:
    """Tell whether a gate can name this."""
    return name in METRICS or (name.startswith(DIAGNOSTIC) and len(name) > len(DIAGNOSTIC))


def metric_named(name: str) -> Metric:
    """Return a metric; the greatest value of every diagnostic is one."""
    if name in METRICS:
        return METRICS[name]
    own = name.removeprefix(DIAGNOSTIC)
    return Metric(
        what=f"greatest value of the diagnostic {own}",
        advice="see what the training loop says of it",
        of_run=numbers.diagnostic(own),
    )


_OF_LOSS: Final = (
    "a learning rate that is too high or too low, too short a warm-up, data that is not text of this tokenizer, or "
    "labels that do not follow from the inputs"
)
_OF_STEPS: Final = "a learning rate that is too high, too short a warm-up, or single bad batches"

METRICS: Final[dict[str, Metric]] = {
    "reconciled": Metric(
        what="verdict of the audit over every byte of the run",
        advice="see ledger reconcile RUN --rehash and ledger explain RULE",
        of_verdict=lambda verdict: verdict.verdict,
    ),
    "control_reconciled": Metric(
        what="verdict of the audit over the control run",
        advice="see ledger reconcile RUN --rehash and ledger explain RULE",
    ),
    "ended": Metric(
        what="how the last session ended",
        advice="the run did not reach its target: what it says is the reason, the last lines of output.log say more",
        of_run=numbers.ended,
    ),
    "updates": Metric(
        what="successful updates of the branch",
        advice="see why the run ended, in its session_end",
        of_run=lambda found, _: found.history.branch_counters().step,
    ),
    "final_loss": Metric(
        what="mean loss of the last train event, nats",
        advice=f"{_OF_LOSS}; or too few updates",
        of_run=lambda found, _: found.final_loss,
    ),
    "best_loss": Metric(
        what="least mean loss of a train event, nats", advice=_OF_LOSS, of_run=numbers.best_loss
    ),
    "loss_left": Metric(
        what="loss of the last train event over that of the first",
        advice=f"{_OF_LOSS}; or too few updates",
        of_run=numbers.loss_left,
    ),
    "loss_rise": Metric(
        what="loss of the last train event minus the least, nats",
        advice=f"the run diverged late: {_OF_STEPS}",
        of_run=numbers.loss_rise,
    ),
    "loss_drop": Metric(
        what="mean loss of the first third minus that of the last third, nats",
        advice=_OF_LOSS,
        of_run=numbers.loss_drop,
    ),
    "loss_falls": Metric(
        what="share of the pairs of an early and a late window in which the late loss is lower (0.5: no trend)",
        advice=f"the loss does not fall clearly: {_OF_LOSS}; weights that do not move; or too few updates",
        of_run=numbers.loss_falls,
    ),
    "nonfinite_count": Metric(
        what="losses and norms that are no finite numbers, attempts refused for one included",
        advice=f"{_OF_STEPS}; a number format that cannot hold the activations; or a division by zero in the model",
        of_run=numbers.nonfinite_count,
    ),
    "repeated_share": Metric(
        what="microbatches whose bytes an earlier one held over microbatches",
        advice="the same text is read again and again (data.repeat, too small a corpus, or a small source of a "
        "mix): a loss falls by memory then; where that is meant, give the gate another bound",
        of_run=numbers.repeated_share,
    ),
    "skipped_share": Metric(
        what="skipped attempts over attempts",
        advice="an initial loss scale that is too large, a guard that is too narrow, or gradients that do not fit the "
        "number format: see the overflow events, lower precision.initial_scale or lengthen the warm-up",
        of_run=numbers.skipped_share,
    ),
    "longest_skip": Metric(
        what="most attempts skipped in a row",
        advice="an initial loss scale that is too large: each skip lowers it by the back-off factor",
        of_run=lambda found, _: found.longest_skip,
    ),
    "clipped_share": Metric(
        what="updates whose gradient norm was clipped over updates",
        advice="the limit decides every update, so the learning rate does not mean what it says: raise clip_norm or "
        "lower the learning rate",
        of_run=numbers.clipped_share,
    ),
    "grad_norm_median": Metric(
        what="median of the windows' greatest gradient norms", advice=_OF_STEPS, of_run=numbers.norm_at(0.5)
    ),
    "grad_norm_p99": Metric(
        what="99th percentile of the windows' greatest gradient norms",
        advice=_OF_STEPS,
        of_run=numbers.norm_at(0.99),
    ),
    "grad_norm_max": Metric(what="greatest gradient norm", advice=_OF_STEPS, of_run=numbers.norm_at(1.0)),
    "norm_spikes": Metric(
        what=f"stretches of windows whose norm exceeds {numbers.SPIKE_FACTOR:g} times the median of the "
        f"{numbers.SPIKE_MEMORY} before",
        advice=f"spikes that repeat are the recipe, not an odd batch: {_OF_STEPS}",
        of_run=numbers.norm_spikes,
    ),
    "spike_share": Metric(
        what=f"such stretches beyond {numbers.SPIKES_BY_CHANCE}, over the windows",
        advice=f"spikes that repeat are the recipe, not an odd batch: {_OF_STEPS}",
        of_run=numbers.spike_share,
    ),
    "decay_per_update": Metric(
        what="share of a weight that decay takes away in one update at the base rate: learning rate times weight decay",
        advice="weights are forgotten within so few updates that a short pilot looks well and a long run stops "
        "learning: lower optimizer.weight_decay, or the learning rate",
        of_run=lambda found, _: recipe_numbers.decay_per_update(found.config),
    ),
    "moment_ratio": Metric(
        what="beta1 over the root of beta2 of Adam, which is known to converge below 1",
        advice="the moments were swapped, or beta2 is too small for beta1: see optimizer.beta1 and optimizer.beta2",
        of_run=lambda found, _: recipe_numbers.moment_ratio(found.config),
    ),
    "warmup_share": Metric(
        what="updates of the warm-up over those of the schedule's horizon; 0 where the schedule has none",
        advice="most of the run, or all of it, is warm-up, and the base rate is never or hardly reached: lower "
        "schedule.warmup_steps",
        of_run=lambda found, _: recipe_numbers.warmup_share(found.config),
    ),
    "held_out_updates": Metric(
        what="target positions of the last complete evaluation over those of one update",
        advice="a loss over so little text is chance: hold more text out (split.validation_fraction)",
        of_run=numbers.held_out_updates,
    ),
    "validation_loss": Metric(
        what="loss of the last complete evaluation, nats",
        advice="evaluation is off, or was not complete; or the model fails on text that it was not trained on",
        of_run=numbers.validation_loss,
    ),
    "validation_gap": Metric(
        what="loss of the last complete evaluation minus the mean training loss of the last third, nats",
        advice="far below 0: held-out text was trained on, or is easier; far above: it is other text, or what was "
        "trained on was learned by heart",
        of_run=numbers.validation_gap,
    ),
    "leaked_share": Metric(
        what="share of the held-out text, in blocks of tokens, that the training text holds word for word",
        advice="held-out text is trained on: prepare the dataset again, split by document and without duplicates",
    ),
    "evaluations": Metric(
        what="evaluations on the branch",
        advice="see evaluation.interval and evaluation.enabled",
        of_run=lambda found, _: found.evaluations,
    ),
    "checkpoints": Metric(
        what="checkpoints on the branch",
        advice="see the checkpoint section of the configuration",
        of_run=lambda found, _: found.checkpoints_on_branch(),
    ),
    "tokens_per_second": Metric(
        what="tokens a second while training",
        advice="see the phases in ledger report; another process on the machine",
        of_run=numbers.training_rate,
    ),
    "wall_tokens_per_second": Metric(
        what="tokens a second of wall clock, everything included",
        advice="see the phases in ledger report: evaluation, checkpoints, waiting for data",
        of_run=numbers.wall_rate,
    ),
    "throughput_ratio": Metric(
        what="median tokens a second of the last third over that of the first",
        advice="something slows down as the run goes on: memory that grows, a machine that heats, a disk that "
        "fills; or another process on the machine",
        of_run=numbers.throughput_ratio,
    ),
    "peak_memory": Metric(
        what="greatest memory that was recorded, bytes",
        advice="a smaller micro batch with more accumulation",
        of_run=numbers.peak_memory,
    ),
    "memory_growth": Metric(
        what="growth of memory from third to third of the run, the lesser of the last two",
        advice="something is kept from step to step (a list of losses with their graphs, a cache without a bound): a "
        "long run would end without memory",
        of_run=numbers.memory_growth,
    ),
    "checkpoint_seconds": Metric(
        what="longest time for which a checkpoint blocked training, seconds",
        advice="a slow disk, or a checkpoint larger than thought",
        of_run=numbers.checkpoint_seconds,
    ),
    "checkpoint_share": Metric(
        what="time that checkpoints blocked training over wall clock",
        advice="checkpoint less often, or to a faster disk",
        of_run=numbers.checkpoint_share,
    ),
    "evaluation_share": Metric(
        what="time that evaluation took over wall clock",
        advice="evaluate less often, or on fewer batches",
        of_run=numbers.evaluation_share,
    ),
    "data_wait_share": Metric(
        what="time spent waiting for data over that and training",
        advice="raise data.prefetch, or move the dataset to a faster disk",
        of_run=numbers.data_wait_share,
    ),
    "interruptions": Metric(
        what="sessions that were killed",
        advice="the run ended before it was killed: raise its target, or kill it earlier",
        of_run=lambda found, _: len(found.interruptions()),
    ),
    "updates_redone": Metric(
        what="updates made again after an interruption",
        advice="it was killed exactly at a checkpoint, so nothing was redone: choose another step",
        of_run=lambda found, _: found.updates_redone(),
    ),
    "redone_equal": Metric(
        what="whether work that was done twice agrees",
        advice="something was not restored, or is not deterministic: see LG306 in ledger reconcile RUN",
        of_verdict=numbers.redone_equal,
    ),
    "same_start": Metric(
        what="starting state of the resumed run against the control's",
        advice="what a checkpoint holds was not all restored: weights, optimizer, scaler, generators or cursor",
        of_verdict=numbers.equivalence("LG801"),
    ),
    "same_data": Metric(
        what="microbatches of the resumed run against the control's",
        advice="the reader went on at another place, or in another order",
        of_verdict=numbers.equivalence("LG802"),
    ),
    "same_loss": Metric(
        what="loss, norm and rate of the resumed run against the control's",
        advice="with equal data: weights, a generator, the schedule or the loss scale were not restored",
        of_verdict=numbers.equivalence("LG803"),
    ),
    "same_parameters": Metric(
        what="parameters and optimizer of the resumed run against the control's",
        advice="with equal losses: the optimizer's state or the order of its parameters was not restored",
        of_verdict=numbers.equivalence("LG804"),
    ),
    "train_tokens": Metric(what="tokens of the training split", advice="prepare more text"),
    "validation_tokens": Metric(
        what="tokens of the validation split", advice="hold more text out: split.validation_fraction"
    ),
}
