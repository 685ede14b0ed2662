"""From a configuration to stages: what the programs make of it, what decides each stage, and who reads whom."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ledger.dataset.manifest import open_dataset
from ledger.errors import ConfigError, EvidenceMissingError, VerificationError
from ledger.pilot.config import ExtraStage, PilotConfig, load_pilot
from ledger.pilot.datasets import DATASET
from ledger.pilot.fingerprint import Fingerprint, recipe_inputs
from ledger.pilot.kinds import KINDS, selected_stages
from ledger.pilot.processes import ask_module
from ledger.pilot.progress import Moment, Report, silent
from ledger.pilot.snapshot import DigestCache
from ledger.pilot.stage import Place, Stage
from ledger.pilot.stages import Given, Prepare, Validate
from ledger.pilot.training import RUN, Branching, Resume, Training, final_checkpoint
from ledger.recipes import recipe_differences
from ledger.records.documents import Recipe
from ledger.records.layout import MANIFEST
from ledger.records.pilot import StageRecord
from ledger.storage.digests import hash_file
from ledger.storage.documents import read_document

__all__ = ["PILOT", "RECORD", "Plan", "Resolved"]

PILOT: Final = "pilot.json"
RECORD: Final = "stage.json"
DIGESTS: Final = ".digests.json"
OPERATIONAL_ADVICE: Final = (
    "override only operational settings there: its identity is that of the long run, which a lock holds"
)


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """What the trainer makes of a configuration."""

    config: Mapping[str, Any]
    classes: Mapping[str, Any]
    identity_sha256: str
    parts: Mapping[str, int]
    tokens_per_update: int
    train_sha256: str | None
    """Identity of what is trained on; None while the dataset is not there."""
    validation_sha256: str | None

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Resolved:
        """Take over what `resolve --json` prints."""
        data = found["inputs"]["dataset"]
        return cls(
            train_sha256=data["metadata_sha256"],
            validation_sha256=data["validation_sha256"],
            **{name: found[name] for name in _TAKEN_OVER},
        )

    @property
    def recipe(self) -> Recipe:
        """The recipe as a run of it would record it."""
        return Recipe(config=dict(self.config), classes=dict(self.classes))

    @property
    def datasets(self) -> list[Path]:
        """Where the datasets lie that it names; that of the held-out text first."""
        data = self.config["data"]
        sources = [source["path"] for source in (data["sources"] or {}).values()]
        return [Path(path).absolute() for path in dict.fromkeys([data["path"], *sources])]


_TAKEN_OVER: Final = ("config", "classes", "identity_sha256", "parts", "tokens_per_update")


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """The long run and every stage that trains, as the trainer would run them."""

    long_run: Resolved
    stages: Mapping[str, Resolved]


class Plan:
    """One configuration of a pilot in one folder."""

    def __init__(
        self,
        files: Sequence[Path],
        overrides: Sequence[str] = (),
        *,
        root: Path | None = None,
        report: Report = silent,
    ) -> None:
        """Read the `pilot` section.

        Args:
            files: configuration files, merged in order.
            overrides: `dotted.key=value`, over them.
            root: the pilot's folder; pilots/NAME if None.
            report: told what goes on.

        Raises:
            ConfigError: it is malformed.
        """
        self.config: PilotConfig = load_pilot(files, overrides)
        self.root = (Path("pilots") / self.config.name if root is None else root).absolute()
        self.place = Place(root=self.root, report=report)
        self._digests = DigestCache(self.root / DIGESTS)
        self.names = selected_stages(
            self.config.stages,
            extra={name: _reads(extra) for name, extra in self.config.extra.items()},
        )
        self._arguments = [
            *(part for path in files for part in ("--config", str(path))),
            *(part for text in overrides if not _is_ours(text) for part in ("--set", text)),
        ]

    @property
    def trained(self) -> list[str]:
        """The chosen stages that train, in order."""
        return [name for name in self.names if name not in ("prepare", "validate")]

    @property
    def dataset(self) -> Path | None:
        """Where the prepared corpus lies, or will; None where the configuration names datasets."""
        return None if self.config.prepare is None else self.root / self.prepare_fingerprint.folder / DATASET

    @cached_property
    def prepare_fingerprint(self) -> Fingerprint:
        """What decides the prepared corpus.

        Raises:
            StageProcessError: the preparation does not accept its configuration.
            EvidenceMissingError: a dataset or input file that is named is not there.
        """
        parts = {"pilot.prepare": KINDS["prepare"].version}
        if self.config.prepare is None:
            named = {
                f"dataset {number}": path for number, path in enumerate(self.resolution.long_run.datasets)
            }
            inputs = {name: open_dataset(path).metadata_sha256 for name, path in named.items()}
            return Fingerprint(stage="prepare", inputs=inputs, parts=parts)
        self.place.report(Moment(stage="prepare", phase="resolving"))
        found = ask_module("data_prep", ["resolve", "--json", "--list-files", *self._preparation])
        digests = {
            f"files.{place}": self._digests.of_list([(name, Path(path)) for name, path in files])
            for place, files in found["files"].items()
        }
        settings = recipe_inputs(found["config"], found["classes"])
        return Fingerprint(stage="prepare", inputs={**settings, **digests}, parts={**parts, **found["parts"]})

    def keep_digests(self) -> None:
        """Keep the digests of the files that were read, in the pilot's folder; who only asks keeps nothing."""
        self._digests.keep()

    @property
    def _preparation(self) -> list[str]:
        prepare = self.config.prepare
        if prepare is None:
            return []
        return [
            *(part for path in prepare.configs for part in ("--config", path)),
            *(part for text in prepare.overrides for part in ("--set", text)),
        ]

    @cached_property
    def resolution(self) -> Resolution:
        """What the trainer makes of the long run and of every stage; with the dataset, where that is there.

        Raises:
            StageProcessError: the trainer does not accept the configuration.
            ConfigError: a stage that must keep the long run's identity changes it.
        """
        self.place.report(Moment(stage="pilot", phase="resolving"))
        data = [] if self.config.prepare is None else ["--set", f"data.path={json.dumps(str(self.dataset))}"]
        variants = [
            part
            for name in self.trained
            for part in ("--variant", f"{name}={json.dumps(self._variant(name))}")
        ]
        found = ask_module("trainer", ["resolve", "--json", *self._arguments, *data, *variants])
        stages = {name: Resolved.from_json(one) for name, one in found.get("variants", {}).items()}
        long_run = Resolved.from_json(found)
        for name, resolved in stages.items():
            if name in KINDS and KINDS[name].has_identity_of_run:
                _require_same_identity(long_run, resolved, stage=name)
        return Resolution(long_run=long_run, stages=stages)

    def _variant(self, name: str) -> dict[str, Any]:
        section = self.config.section(name)
        kind = KINDS.get(name)
        purpose = section.purpose if isinstance(section, ExtraStage) else kind and kind.purpose
        variant = _laid_over(dict(kind.recipe) if kind else {}, section.recipe)
        own = {"name": f"{self.config.name} {name}", "purpose": purpose, "directory": None}
        return {**variant, "run": {**variant.get("run", {}), **own}}

    def forget_resolution(self) -> None:
        """Ask the trainer again: the dataset is there now."""
        self.__dict__.pop("resolution", None)

    def fingerprints(self) -> dict[str, Fingerprint]:
        """Return what decides each chosen stage, in order; only `prepare` while its dataset is not there."""
        found = {"prepare": self.prepare_fingerprint}
        if not self.trained or self.resolution.long_run.train_sha256 is None:
            return found
        for name in self.names[1:]:
            found[name] = self._validation(found) if name == "validate" else self._training(name, found)
        return found

    def _training(self, name: str, before: Mapping[str, Fingerprint]) -> Fingerprint:
        section, kind, resolved = self.config.section(name), KINDS.get(name), self.resolution.stages[name]
        own = section.model_dump(mode="json", exclude={"recipe", "gates", "purpose"})
        reads = kind.reads if kind else _reads(self.config.extra[name])
        version = kind.version if kind else EXTRA_VERSION
        return Fingerprint(
            stage=name,
            inputs={
                **recipe_inputs(resolved.config, resolved.classes),
                **{f"pilot.{key}": value for key, value in own.items()},
                **{f"stage.{stage}": before[stage].sha256 for stage in reads},
            },
            parts={f"pilot.{name if kind else 'extra'}": version, **resolved.parts},
        )

    def _validation(self, before: Mapping[str, Fingerprint]) -> Fingerprint:
        kind, parts = KINDS["validate"], self.resolution.long_run.parts
        measured = {name: version for name, version in parts.items() if name == "evaluation"}
        return Fingerprint(
            stage="validate",
            inputs={f"stage.{stage}": before[stage].sha256 for stage in kind.reads},
            parts={"pilot.validate": kind.version, **measured},
        )

    def stage(self, name: str, fingerprints: Mapping[str, Fingerprint]) -> Stage:
        """Return a stage whose turn it is: what it reads is there.

        Raises:
            EvidenceMissingError: what it reads is not there.
            VerificationError: the checkpoint that `validate` measured is no longer that one.
        """
        fingerprint = fingerprints[name]
        if name == "prepare":
            return self._prepare_stage(fingerprint)
        asked = self.config.section(name).gates
        if name == "validate":
            datasets = self.resolution.long_run.datasets
            run_dir = self.root / fingerprints["stability"].folder / RUN
            is_mix = self.resolution.long_run.config["data"]["sources"] is not None
            return Validate(
                fingerprint,
                self.place,
                asked=asked,
                checkpoint=final_checkpoint(run_dir),
                held_out=datasets[0],
                trained=datasets[1:] if is_mix else datasets,
            )
        recipe = self.resolution.stages[name].config
        is_mix = recipe["data"]["sources"] is not None
        # Where it lies now: a run recorded where it lay.
        data = None if is_mix else Path(recipe["data"]["path"])
        if name == "resume":
            after = self.config.resume.kill_after_step
            return Resume(
                fingerprint, self.place, asked=asked, recipe=recipe, data=data, kill_after_step=after
            )
        start = self._start(name, fingerprints)
        return Training(fingerprint, self.place, asked=asked, recipe=recipe, data=data, branching=start)

    def _prepare_stage(self, fingerprint: Fingerprint) -> Stage:
        if self.config.prepare is None:
            datasets = self.resolution.long_run.datasets
            return Given(fingerprint, self.place, asked={}, datasets=datasets)
        return Prepare(fingerprint, self.place, asked=self.config.prepare.gates, arguments=self._preparation)

    def _start(self, name: str, fingerprints: Mapping[str, Fingerprint]) -> Branching | None:
        """Return the checkpoint that `validate` measured, for a stage that reads it."""
        extra = self.config.extra.get(name)
        if extra is None or extra.start == "fresh":
            return None
        path = self.root / fingerprints["validate"].folder / RECORD
        measured = read_document(path, StageRecord).checkpoint
        if measured is None:
            raise EvidenceMissingError("names no checkpoint", path=path)
        folder = self.root / measured.path
        if hash_file(folder / MANIFEST).sha256 != measured.manifest_sha256:
            raise VerificationError("is not the checkpoint that validate measured", path=folder)
        return Branching(checkpoint=folder, mode=extra.start)


EXTRA_VERSION: Final = 1
"""Version of what a configuration's own stage does."""


def _reads(extra: ExtraStage) -> tuple[str, ...]:
    return ("prepare",) if extra.start == "fresh" else ("prepare", "validate")


def _is_ours(override: str) -> bool:
    return override.partition("=")[0].split(".")[0].strip() == "pilot"


def _require_same_identity(long_run: Resolved, resolved: Resolved, *, stage: str) -> None:
    differences = recipe_differences(long_run.recipe, resolved.recipe)
    changed = [str(found) for found in differences if found.leaf_class == "identity"]
    if changed:
        raise ConfigError(
            f"changes what defines the experiment: {'; '.join(changed)}",
            place=f"pilot.{stage}.recipe",
            expected="the identity of the long run",
            advice=OPERATIONAL_ADVICE,
        )


def _laid_over(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge as configurations are merged: a section that changes its `name` starts afresh."""
    merged = dict(base)
    for key, value in over.items():
        before = merged.get(key)
        if not isinstance(before, Mapping) or not isinstance(value, Mapping):
            merged[key] = value
        elif "name" in value and before.get("name", value["name"]) != value["name"]:
            merged[key] = dict(value)
        else:
            merged[key] = _laid_over(before, value)
    return merged
