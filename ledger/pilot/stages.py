"""The stages of a pilot: what each runs, and what its records show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from ledger.dataset.leakage import leaked_share
from ledger.dataset.manifest import METADATA_NAME, Dataset, open_dataset
from ledger.dataset.verify import verify_dataset
from ledger.errors import VerificationError
from ledger.pilot.datasets import DATASET, token_counts
from ledger.pilot.fingerprint import Fingerprint
from ledger.pilot.gates import GateBound, GateBounds
from ledger.pilot.measure import measure_run
from ledger.pilot.metrics import Evidence
from ledger.pilot.processes import run_module
from ledger.pilot.stage import Found, Place, Stage
from ledger.records.documents import Evaluation
from ledger.records.fields import Measurement
from ledger.records.layout import MANIFEST
from ledger.records.pilot import Gate, StageCheckpoint, StageFile
from ledger.storage.digests import hash_file
from ledger.storage.documents import read_document
from ledger.storage.filesystem import OS

__all__ = ["EVALUATION", "Given", "Prepare", "Validate", "measured_by_validate"]

EVALUATION: Final = "evaluation.json"


class Prepare(Stage):
    """The corpus is prepared."""

    built_in: ClassVar[Mapping[str, GateBound]] = {
        "train_tokens": GateBound(min=1, reason="there is something to train on"),
        "validation_tokens": GateBound(min=1, reason="and something that training never sees"),
    }

    def __init__(
        self, fingerprint: Fingerprint, place: Place, *, asked: GateBounds, arguments: Sequence[str]
    ) -> None:
        super().__init__(fingerprint, place, asked=asked)
        self._arguments = arguments

    @property
    def dataset(self) -> Path:
        """Where the prepared corpus lies."""
        return self.folder / DATASET

    def chosen(self, gates: list[Gate]) -> list[Gate]:
        """Return every gate: a corpus that holds text is all that is asked of it."""
        return gates

    def build(self) -> None:
        """Prepare it, from what an interrupted preparation left."""
        run_module(
            "data_prep",
            ["prepare", *self._arguments, "--output", str(self.dataset)],
            log=self.output,
            watch=lambda: self.say("preparing"),
            waiting=lambda note: self.say("waiting", note=note),
        )

    def inspect(self) -> Found:
        """Verify every byte of it."""
        self.say("hashing")
        dataset = _verified(self.dataset)
        file = StageFile(path=f"{DATASET}/{METADATA_NAME}", sha256=dataset.metadata_sha256)
        return Found(evidence=Evidence(others=token_counts(dataset)), files=[file])


class Given(Stage):
    """The datasets that the configuration names are taken as they are; the first is the one that is evaluated on."""

    built_in: ClassVar[Mapping[str, GateBound]] = Prepare.built_in

    def __init__(
        self, fingerprint: Fingerprint, place: Place, *, asked: GateBounds, datasets: Sequence[Path]
    ) -> None:
        super().__init__(fingerprint, place, asked=asked)
        self._datasets = datasets

    def chosen(self, gates: list[Gate]) -> list[Gate]:
        """Return every gate."""
        return gates

    def build(self) -> None:
        """Nothing is made."""

    def outputs(self) -> Sequence[Path]:
        """Return the folders of the datasets, which lie elsewhere."""
        return self._datasets

    def inspect(self) -> Found:
        """Verify every byte of them."""
        self.say("hashing")
        main, *_ = [_verified(path) for path in self._datasets]
        return Found(evidence=Evidence(others=token_counts(main)))


class Validate(Stage):
    """Stability's final checkpoint is measured on all the text that training never saw."""

    def __init__(
        self,
        fingerprint: Fingerprint,
        place: Place,
        *,
        asked: GateBounds,
        checkpoint: Path,
        held_out: Path,
        trained: Sequence[Path],
    ) -> None:
        """Say what is measured.

        Args:
            fingerprint: what decides the result.
            place: where, and who is told.
            asked: bounds of gates.
            checkpoint: stability's final checkpoint.
            held_out: the dataset whose validation split is measured on.
            trained: the datasets that training reads.
        """
        super().__init__(fingerprint, place, asked=asked)
        self._checkpoint = checkpoint
        self._held_out = open_dataset(held_out)
        self._trained = trained

    def build(self) -> None:
        """Measure it, unless that was done."""
        if OS.exists(self.folder / EVALUATION):
            return
        data = f"data.path={self._held_out.directory}"
        written = ["--output", str(self.folder / EVALUATION)]
        run_module(
            "trainer",
            ["evaluate", str(self._checkpoint), "--full", "--set", data, *written],
            log=self.output,
            watch=lambda: self.say("evaluating"),
            waiting=lambda note: self.say("waiting", note=note),
        )

    def inspect(self) -> Found:
        """Read the evaluation, and see to it that it is one of this checkpoint on text that was not trained on."""
        path = self.folder / EVALUATION
        evaluation = read_document(path, Evaluation)
        run = measure_run(self._checkpoint.parent.parent)
        manifest_sha256 = hash_file(self._checkpoint / MANIFEST).sha256
        asked = (run.history.run_id, manifest_sha256, self._held_out.metadata_sha256)
        if (evaluation.run_id, evaluation.manifest_sha256, evaluation.data_sha256) != asked:
            raise VerificationError(
                "is no evaluation of stability's final checkpoint on the held-out text", path=path
            )
        self.say("hashing")
        trained = [open_dataset(path) for path in self._trained]
        others = measured_by_validate(evaluation, held_out=self._held_out, trained=trained)
        return Found(
            evidence=Evidence(run=run, others=others),
            files=[StageFile(path=EVALUATION, sha256=hash_file(path).sha256)],
            checkpoint=StageCheckpoint(
                path=self._checkpoint.relative_to(self.place.root).as_posix(),
                run_id=evaluation.run_id,
                step=evaluation.step,
                manifest_sha256=manifest_sha256,
            ),
        )


def _verified(path: Path) -> Dataset:
    dataset = open_dataset(path)
    for problem in verify_dataset(path).errors:
        raise problem.error
    return dataset


def measured_by_validate(
    evaluation: Evaluation, *, held_out: Dataset, trained: Sequence[Dataset]
) -> dict[str, Measurement | None]:
    """Return what `validate` measures itself: the loss that was read, and how far the text is that of the training."""
    splits = [dataset.split("train") for dataset in trained]
    return {
        "validation_loss": evaluation.loss if evaluation.complete else None,
        "leaked_share": leaked_share(held_out.split("validation"), splits),
    }
