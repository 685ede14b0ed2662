"""A training loop without tensors: its whole state is one number, so that every test of records is quick.

The toy "model" is a float that each update moves by a law of the batch; a resume must restore it or the recorder
refuses. It reports through `RunRecorder` exactly what a real loop reports.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.checkpoints import CompleteCheckpoint, read_trainer_state
from ledger.laws.scaler import LossScale, ScalerLaw
from ledger.recorder import EvaluationResult, LiveState, RunRecorder, SessionPlan
from ledger.records.documents import Environment, LeafClass, Recipe, TensorEntry
from ledger.records.parts import Cursor, DataIdentities, ModelSummary, OptimizerGroup, Position, Start
from ledger.storage.canonical import sha256_hex
from ledger.storage.clock import Clock
from ledger.storage.digests import tensor_table_sha256
from ledger.storage.filesystem import OS, FileSystem

TOKENS_PER_MICROBATCH = 8
MICROBATCHES_PER_EPOCH = 7
SCALER = ScalerLaw(initial_scale=1024.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=3)
DATA_SHA256 = sha256_hex(b"the toy corpus")
Tensors = dict[str, NDArray[Any]]
_DTYPES = {"<f4": "F32", "<f8": "F64"}


@dataclass(frozen=True, kw_only=True)
class ToySettings:
    """What a toy run is told to do."""

    target_step: int = 12
    accumulation: int = 2
    interval: int = 1
    evidence: bool = True
    checkpoint_interval: int | None = 4
    evaluate_every: int | None = 5
    skip_attempts: frozenset[int] = frozenset()
    """Numbers of the attempts (from 1) that are skipped."""
    overflow_attempts: frozenset[int] | None = None
    """Numbers of the attempts that overflow under a loss scale; None: the toy scales nothing."""
    policy: str = "interval"
    clip_norm: float | None = 1.0
    learning_rate: float = 0.01
    warmup_steps: int = 0
    deterministic: bool = True
    """What the recipe declares: whether the same data and state give the same result."""

    def recipe(self) -> Recipe:
        """Return the recipe that these settings are."""
        config: dict[str, dict[str, Any]] = {
            "run": {"target_step": self.target_step},
            "batch": {"accumulation": self.accumulation},
            "optimizer": {"learning_rate": self.learning_rate, "clip_norm": self.clip_norm},
            "schedule": {"name": "constant", "warmup_steps": self.warmup_steps},
            "logging": {"interval": self.interval, "evidence": self.evidence},
            "checkpoint": {"policy": self.policy, "interval": self.checkpoint_interval},
            "evaluation": {"enabled": True, "interval": self.evaluate_every},
            "determinism": {"deterministic": self.deterministic},
            "precision": {"name": "fp32"}
            if self.overflow_attempts is None
            else {"name": "fp16", **dataclasses.asdict(SCALER)},
        }
        operational = ("run", "logging", "checkpoint", "evaluation")
        classes: dict[str, LeafClass] = {
            f"{section}.{key}": "operational" if section in operational else "identity"
            for section, values in config.items()
            for key in values
        }
        return Recipe(config=config, classes=classes)


class Killed(BaseException):
    """The toy's process "dies" here: nothing more is written and nothing is ended."""


@dataclass
class ToyLoop:
    """The live objects of a toy run and its training loop."""

    settings: ToySettings = field(default_factory=ToySettings)
    weight: float = 1.0
    updates: int = 0
    """What the toy's optimizer counted itself."""
    draws: int = 0
    position: Position = field(default_factory=lambda: Position(0, 0))
    loss_tokens: int | None = None
    """Positions of the last microbatch that count in the loss; None: all."""
    scaler: LossScale = SCALER.initial

    def capture(self) -> LiveState:
        """Return the live state as the recorder asks for it."""
        return LiveState(
            model=tensor_table_sha256(_entries(self.model_tensors())),
            optimizer=tensor_table_sha256(_entries(self.optimizer_tensors())),
            schedule={"step": self.draws},
            rng={"draws": self.draws},
            scaler=None if self.settings.overflow_attempts is None else dataclasses.asdict(self.scaler),
        )

    def model_tensors(self) -> Tensors:
        """Return the model: one number."""
        return {"weight": np.array([self.weight], dtype="<f8")}

    def optimizer_tensors(self) -> Tensors:
        """Return what the optimizer keeps of that number."""
        return {
            "all/weight/moment": np.array([self.weight * 2], dtype="<f8"),
            "all/weight/step": np.array(self.updates, dtype="<f4"),
        }

    def save(self, folder: Path, metadata: dict[str, str]) -> None:
        """Write the two tensor files of a checkpoint."""
        write_safetensors(folder / "model.safetensors", self.model_tensors(), metadata)
        write_safetensors(folder / "optimizer.safetensors", self.optimizer_tensors(), metadata)

    def restore_tensors(self, folder: Path) -> None:
        """Take up what the tensor files of a checkpoint hold."""
        self.weight = struct.unpack("<d", (folder / "model.safetensors").read_bytes()[-8:])[0]
        self.updates = int(struct.unpack("<f", (folder / "optimizer.safetensors").read_bytes()[-4:])[0])

    def restore(self, checkpoint: CompleteCheckpoint) -> None:
        """Take up a checkpoint's state."""
        self.restore_tensors(checkpoint.folder)
        state = read_trainer_state(checkpoint)
        self.draws = state.rng["draws"]
        self.position = state.cursor["train"]
        if state.scaler is not None:
            self.scaler = LossScale(**state.scaler)

    def draw(self) -> tuple[bytes, Cursor]:
        """Return the next microbatch's digest and the cursor behind it."""
        epoch, offset = self.position.epoch, self.position.offset
        digest = hashlib.sha256(f"batch {epoch} {offset}".encode()).digest()
        offset += TOKENS_PER_MICROBATCH
        full = offset == TOKENS_PER_MICROBATCH * MICROBATCHES_PER_EPOCH
        self.position = Position(epoch + 1, 0) if full else Position(epoch, offset)
        self.draws += 1
        return digest, {"train": self.position}

    def rate(self, step: int) -> float:
        """Return the learning rate of an update by its number."""
        share = step / self.settings.warmup_steps if step < self.settings.warmup_steps else 1.0
        return self.settings.learning_rate * share

    def learn(self, digest: bytes) -> float:
        """Move the weight by a law of the batch and return a loss."""
        self.weight = self.weight * 0.9 + digest[0] / 2550
        self.updates += 1
        return 2.0 + self.weight


def write_safetensors(path: Path, tensors: Tensors, metadata: dict[str, str]) -> None:
    """Write arrays of float32 and float64 in the safetensors format, in their order."""
    table: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in tensors.items():
        dtype = _DTYPES[array.dtype.str]
        table[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    header = json.dumps(table, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    body = b"".join(array.tobytes() for array in tensors.values())
    path.write_bytes(struct.pack("<Q", len(header)) + header + body)


def _entries(tensors: Tensors) -> dict[str, TensorEntry]:
    return {
        name: TensorEntry(
            dtype=_DTYPES[array.dtype.str], shape=list(array.shape), sha256=sha256_hex(array.tobytes())
        )
        for name, array in tensors.items()
    }


def environment() -> Environment:
    """Return an environment that never changes."""
    return Environment(
        packages={"toy": "1"}, python="3", platform="none", hardware={}, settings={}, code={"commit": None}
    )


def plan_of(loop: ToyLoop, **changes: Any) -> SessionPlan:
    """Return the plan of a session that starts with this loop as it stands."""
    plan = SessionPlan(
        recipe=loop.settings.recipe(),
        environment=environment(),
        data=DataIdentities(train=DATA_SHA256, validation=DATA_SHA256),
        tokens_per_microbatch=TOKENS_PER_MICROBATCH,
        cursor={"train": loop.position},
        name="toy",
        purpose="resume",
        model=ModelSummary(parameters={"weight": 1}),
        optimizer=[OptimizerGroup(name="all", tensors=1, parameters=1)],
        argv=["toy"],
    )
    return dataclasses.replace(plan, **changes)


def begin(
    recorder: RunRecorder, loop: ToyLoop, *, start: Start = "fresh", named: Path | None = None, **changes: Any
) -> None:
    """Restore what the start asks for and start the session."""
    parent = None
    if named is not None:
        parent = recorder.checkpoint_named(named)
    elif start in ("resume", "auto"):
        parent = recorder.latest_checkpoint()
    if parent is not None:
        loop.restore(parent)
    recorder.start(plan_of(loop, start=start, parent=parent, **changes), capture=loop.capture)


def _nothing(_recorder: RunRecorder, _moment: str) -> None:
    """Let the loop go on."""


Before = Callable[[RunRecorder, str], None]
"""Is called with the name of each moment of a toy run; may raise `Killed`."""


def run_toy(
    run_dir: Path,
    settings: ToySettings | None = None,
    *,
    start: Start = "fresh",
    clock: Clock | None = None,
    before: Before = _nothing,
    checkpoint: Path | None = None,
    fs: FileSystem = OS,
) -> None:
    """Train a toy run from where its records stand to its target.

    `before` is called with the name of each moment (`microbatch`, `attempt`, `evaluation`, `checkpoint`, `final`,
    `final evaluation`, `end`); it may raise `Killed`, and then nothing more reaches the disk.
    """
    loop = ToyLoop(settings or ToySettings())
    recorder = RunRecorder(run_dir, clock=clock, fs=fs)
    with mortal(recorder):
        begin(recorder, loop, start=start, named=checkpoint)
        train(recorder, loop, before)


@contextmanager
def mortal(recorder: RunRecorder) -> Iterator[None]:
    """Do as `with recorder` does, except that a `Killed` process ends nothing and writes nothing."""
    try:
        recorder.__enter__()
        try:
            yield
        except Exception as error:
            recorder.__exit__(type(error), error, error.__traceback__)
            raise
        recorder.__exit__(None, None, None)
    except Killed:
        recorder.abandon()
        raise


def train(recorder: RunRecorder, loop: ToyLoop, before: Before = _nothing) -> None:
    """Train to the target with everything the settings ask for, and end the session."""
    settings = loop.settings
    if settings.evaluate_every and recorder.counters.attempts == 0:
        evaluate(recorder, loop, complete=False)
    while recorder.step < settings.target_step:
        attempt(recorder, loop, before)
        if settings.evaluate_every and recorder.step % settings.evaluate_every == 0:
            before(recorder, "evaluation")
            evaluate(recorder, loop, complete=False)
        due = settings.checkpoint_interval and recorder.step % settings.checkpoint_interval == 0
        if settings.policy == "interval" and due and recorder.step < settings.target_step:
            before(recorder, "checkpoint")
            save(recorder, loop, "interval")
    before(recorder, "final")
    if settings.policy != "none" and recorder.checkpoint_here is None:
        save(recorder, loop, "final")
    before(recorder, "final evaluation")
    evaluate(recorder, loop, complete=True)
    before(recorder, "end")
    recorder.end()


def record(
    run_dir: Path,
    body: Callable[[RunRecorder, ToyLoop], object],
    *,
    settings: ToySettings | None = None,
    start: Start = "fresh",
    clock: Clock | None = None,
    fs: FileSystem = OS,
) -> None:
    """Start a session, do `body` in it, and leave it as that leaves it."""
    loop = ToyLoop(settings or ToySettings())
    with RunRecorder(run_dir, clock=clock, fs=fs) as recorder:
        begin(recorder, loop, start=start)
        body(recorder, loop)


def consume(recorder: RunRecorder, loop: ToyLoop) -> bytes:
    """Draw one microbatch, report it and return its digest."""
    with recorder.phase("data"):
        digest, cursor = loop.draw()
    recorder.microbatch(
        tokens=TOKENS_PER_MICROBATCH, loss_tokens=loop.loss_tokens, digest=digest, cursor=cursor
    )
    return digest


def attempt(recorder: RunRecorder, loop: ToyLoop, before: Before = _nothing) -> None:
    """Process one accumulation window and update, or skip where the settings say so."""
    for _ in range(loop.settings.accumulation):
        before(recorder, "microbatch")
        digest = consume(recorder, loop)
    before(recorder, "attempt")
    number, overflows = recorder.counters.attempts + 1, loop.settings.overflow_attempts
    scaled: dict[str, Any] = {}
    if number in (overflows or ()):
        before_it, loop.scaler = loop.scaler, SCALER.after_overflow(loop.scaler)
        scales = (before_it.scale, loop.scaler.scale)
        recorder.skipped("overflow", loss=1.0, grad_norm=float("inf"), loss_scale=scales, growth_tracker=0)
    elif number in loop.settings.skip_attempts:
        if overflows is not None:
            scaled = {"loss_scale": (loop.scaler.scale,) * 2, "growth_tracker": loop.scaler.growth_tracker}
        recorder.skipped("nonfinite_loss", loss=float("nan"), grad_norm=None, **scaled)
    else:
        if overflows is not None:
            loop.scaler = SCALER.after_updates(loop.scaler)
            scaled = {"loss_scale": loop.scaler.scale, "growth_tracker": loop.scaler.growth_tracker}
        rates = {"all": loop.rate(recorder.step + 1)}
        recorder.updated(loss=loop.learn(digest), grad_norm=0.5, lr=rates, **scaled)


def save(recorder: RunRecorder, loop: ToyLoop, kind: str) -> None:
    """Commit a checkpoint unless this session holds one at this step."""
    here = recorder.checkpoint_here
    if here is not None and here.manifest.session == recorder.session:
        return
    with recorder.checkpoint(kind) as folder:  # type: ignore[arg-type]
        loop.save(folder, recorder.tensor_metadata())


def evaluate(recorder: RunRecorder, loop: ToyLoop, *, complete: bool) -> None:
    """Report a measurement; the complete one is kept and names the checkpoint."""
    with recorder.phase("evaluate"):
        result = measurement(loop, complete=complete)
    recorder.evaluation(result, of=recorder.checkpoint_here if complete else None, keep=complete)


def measurement(loop: ToyLoop, *, complete: bool) -> EvaluationResult:
    """Return a measurement of a toy."""
    rng = loop.capture().digests({}).rng
    return EvaluationResult(
        split="validation",
        data_sha256=DATA_SHA256,
        loss=2.0 + loop.weight,
        tokens=16,
        batches=2,
        complete=complete,
        metrics={"perplexity": 8.0},
        rng_before=rng,
        rng_after=rng,
    )
