"""The `pilot` section of a long run's configuration: what each stage changes of it, and what is asked of each.

Everything else in the configuration is the long run's own and is read by the trainer alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from ledger.config import StrictModel, file_of, leaf, load_config
from ledger.errors import ConfigError
from ledger.pilot.gates import GateBounds, gates_of
from ledger.pilot.kinds import KINDS
from ledger.records.parts import Purpose
from ledger.storage.filesystem import OS

__all__ = [
    "ExtraStage",
    "PilotConfig",
    "PrepareSection",
    "ResumeSection",
    "StageSection",
    "load_pilot",
]

SECTION = "pilot"

StageName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
"""Name of a stage: it begins the name of a folder."""


class StageSection(StrictModel):
    """What a stage changes of the long run's configuration, and what is asked of it."""

    recipe: dict[str, Any] = leaf("identity", default_factory=dict)
    """Settings of the trainer, laid over the long run's and over this stage's defaults."""
    gates: GateBounds = leaf("volatile", default_factory=dict)
    """Bounds, over this stage's defaults; null switches one off. Another bound is judged anew, without training."""


class PrepareSection(StrictModel):
    """How the corpus is prepared."""

    configs: list[str] = leaf("identity", min_length=1)
    """Configurations of the preparation, merged in order; relative to the file that names them."""
    overrides: list[str] = leaf("identity", default_factory=list)
    """`dotted.key=value`, over them."""
    gates: GateBounds = leaf("volatile", default_factory=dict)
    """As of the other stages."""


class ResumeSection(StageSection):
    """The run that is killed and resumed."""

    kill_after_step: int = leaf("identity", 11, ge=1)
    """The run is killed as soon as this update is on the log; choose one that is no checkpoint."""


class ExtraStage(StageSection):
    """A stage of one's own, behind `validate`."""

    purpose: Purpose = leaf("identity", "stability")
    """What the run is for."""
    start: Literal["fresh", "initialise", "continue"] = leaf("identity", "fresh")
    """From nothing; from the weights of the checkpoint that `validate` measured; or on from that checkpoint."""


class PilotConfig(StrictModel):
    """One rehearsal of a long run."""

    name: str = leaf("volatile", min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    """Name of the pilot; its folder is pilots/NAME unless another is given."""
    stages: list[StageName] | None = leaf("volatile", None, min_length=1)
    """The stages to run; those that they read come along, and `validate` with every one that trains. Null: all."""
    prepare: PrepareSection | None = leaf("identity", None)
    """How the corpus is prepared; null: the datasets that the configuration names are taken as they are."""
    smoke: StageSection = StageSection()
    """Does it execute?"""
    overfit: StageSection = StageSection()
    """Can it learn a deliberately easy problem?"""
    acceptance: StageSection = StageSection()
    """Does everything run together, in full geometry?"""
    stability: StageSection = StageSection()
    """Is the recipe sensible on successive batches? Only operational settings may differ from the long run's."""
    resume: ResumeSection = ResumeSection()
    """Is an interrupted run the run that never stopped? Only operational settings may differ."""
    validation: StageSection = Field(
        StageSection(), alias="validate", json_schema_extra={"class": "volatile"}
    )
    """How good is stability's final checkpoint on data that training never saw? It has gates only."""
    extra: dict[StageName, ExtraStage] = leaf("identity", default_factory=dict)
    """Stages of one's own by their names, in this order behind `validate`."""

    @model_validator(mode="after")
    def _stages_are_known(self) -> PilotConfig:
        if taken := sorted(self.extra.keys() & KINDS.keys()):
            raise ValueError(f"extra: {', '.join(taken)} is the name of a stage that exists anyway")
        names = [*KINDS, *self.extra]
        if unknown := [name for name in self.stages or () if name not in names]:
            raise ValueError(f"stages: {', '.join(unknown)} is no stage; known are {', '.join(names)}")
        for name in [*names[1:], *(["prepare"] if self.prepare else [])]:
            section = self.prepare if name == "prepare" else self.section(name)
            try:
                gates_of(name, section.gates if section else None)
            except ValueError as error:
                raise ValueError(f"{name}.gates: {error}") from error
        if self.validation.recipe:
            raise ValueError("validate: it trains nothing, so it changes no recipe")
        return self

    def section(self, stage: str) -> StageSection:
        """Return the section of a stage that trains, or that of `validate`."""
        if stage in self.extra:
            return self.extra[stage]
        found: StageSection = self.validation if stage == "validate" else getattr(self, stage)
        return found


class _File(StrictModel):
    """A configuration, as far as it is the pilot's."""

    pilot: PilotConfig


def load_pilot(paths: Sequence[Path], overrides: Sequence[str] = ()) -> PilotConfig:
    """Return the `pilot` section of a configuration, its files as absolute paths.

    Raises:
        ConfigError: there is none, it is malformed, or names a file that does not exist.
    """
    pilot = load_config(paths, overrides, model=_File, only=SECTION).pilot
    if pilot.prepare is None:
        return pilot
    stated = file_of(paths, (SECTION, "prepare", "configs"), model=_File)
    folder = Path() if stated is None else stated.parent
    found = [(folder / name).absolute() for name in pilot.prepare.configs]
    for path in found:
        if not OS.exists(path):
            raise ConfigError(
                "there is no such file",
                path=path,
                place="pilot.prepare.configs",
                expected=f"configurations of the preparation, relative to {stated or 'the working directory'}",
            )
    prepare = pilot.prepare.model_copy(update={"configs": [str(path) for path in found]})
    return pilot.model_copy(update={"prepare": prepare})
