"""LG403: the parameters that a run states of its model and its optimizer, against the tensors of its checkpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import prod
from typing import ClassVar

from ledger.audit.optimizer_steps import parse_state_names
from ledger.audit.stream import Checker
from ledger.records.documents import CheckpointManifest, RunDocument, TensorEntry
from ledger.records.layout import MODEL_FILE, OPTIMIZER_FILE
from ledger.records.parts import OptimizerGroup, RunFacts

__all__ = ["ParameterChecker"]


class ParameterChecker(Checker):
    """Part of LG403: read from the tables of the manifests, whose bytes are LG402's.

    Which tensors are trained, only the optimizer's file tells, where it names them `group/parameter/field` of the
    model's tensors; a parameter that no gradient reached has no state there. So a group must hold what it names and,
    where it names all its tensors, nothing else.
    """

    rules: ClassVar[tuple[str, ...]] = ("LG403",)

    def finish(self) -> None:
        """Compare with every complete checkpoint; what several of them show is said once."""
        facts = self.stream.history.facts or self.stream.files.run.document
        if facts is None:
            return
        told = set()
        for path, folder in self.stream.files.complete_checkpoints.items():
            if folder.manifest.document is None:
                continue
            for problem in _problems(facts, folder.manifest.document):
                if problem not in told:
                    told.add(problem)
                    self.findings.add("LG403", problem, where=path)


def _problems(facts: RunFacts | RunDocument, manifest: CheckpointManifest) -> Iterator[str]:
    sizes = {name: prod(entry.shape) for name, entry in _tensors(manifest, MODEL_FILE).items()}
    if not sizes:
        return
    held, stated = sum(sizes.values()), sum(facts.model.parameters.values())
    if stated > held:
        yield f"the run states {stated} trainable parameters, but {MODEL_FILE} holds {held} numbers in all"
    named = _parameters_by_group(manifest, sizes)
    groups = {group.name: group for group in facts.optimizer}
    for name in sorted(named.keys() & groups.keys()):
        yield from _group_problems(groups[name], named[name], sizes)
    are_all_named = all(len(named.get(name, ())) == group.tensors for name, group in groups.items())
    trained = sum(sizes[name] for names in named.values() for name in names)
    if sum(group.tensors for group in facts.optimizer) == len(sizes):
        are_all_named, trained = True, held
    if groups and are_all_named and facts.model.parameters and stated < trained:
        yield f"the run states {stated} trainable parameters, but the tensors that it trains hold {trained}"


def _group_problems(group: OptimizerGroup, named: set[str], sizes: Mapping[str, int]) -> Iterator[str]:
    held = sum(sizes[name] for name in named)
    if len(named) > group.tensors:
        yield (
            f"the run states {group.tensors} tensors in the optimizer's group {group.name}, but {OPTIMIZER_FILE} "
            f"keeps the state of {len(named)}"
        )
    elif held > group.parameters or (len(named) == group.tensors and held != group.parameters):
        yield (
            f"the run states {group.parameters} parameters in the optimizer's group {group.name}, but its "
            f"{len(named)} tensors in {MODEL_FILE} hold {held}"
        )


def _parameters_by_group(manifest: CheckpointManifest, sizes: Mapping[str, int]) -> Mapping[str, set[str]]:
    """Return the model's tensors that each group keeps state of; none where the names do not say so."""
    names = parse_state_names(_tensors(manifest, OPTIMIZER_FILE), groups=())
    found: defaultdict[str, set[str]] = defaultdict(set)
    if isinstance(names, str) or not all(said.parameter in sizes for said in names.values()):
        return found
    for said in names.values():
        found[said.group].add(said.parameter)
    return found


def _tensors(manifest: CheckpointManifest, file: str) -> Mapping[str, TensorEntry]:
    entry = manifest.files.get(file)
    return {} if entry is None else entry.tensors or {}
