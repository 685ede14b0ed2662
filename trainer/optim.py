"""The optimizer: which parameter belongs to which group, AdamW over the groups, and Muon where the recipe asks for it.

Muon: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; its scaling to AdamW's size: Liu et al. 2025,
arXiv:2502.16982. AdamW: Loshchilov and Hutter 2017, arXiv:1711.05101.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ledger.records.parts import OptimizerGroup

if TYPE_CHECKING:
    from trainer.config import MuonConfig, OptimizerConfig

__all__ = ["Optimizer", "Partition", "partition", "partition_summary"]

Partition = dict[str, dict[str, nn.Parameter]]
"""Group name to its parameters by name."""


def partition(model: nn.Module, *, has_muon: bool = False) -> Partition:
    """Divide the trainable parameters, each into exactly one group; no empty groups.

    `muon` takes the matrices inside the blocks where it is asked for, `decay` what else has two or more dimensions,
    `no_decay` the rest.
    """
    groups: Partition = {"muon": {}, "decay": {}, "no_decay": {}}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[_group_of(name, parameter, has_muon=has_muon)][name] = parameter
    return {name: members for name, members in groups.items() if members}


def _group_of(name: str, parameter: nn.Parameter, *, has_muon: bool) -> str:
    if has_muon and parameter.ndim == 2 and name.startswith("blocks."):
        return "muon"
    return "decay" if parameter.ndim >= 2 else "no_decay"


def partition_summary(groups: Partition) -> list[OptimizerGroup]:
    """Return tensors and parameters of each group, as run.json shows them."""
    return [
        OptimizerGroup(
            name=name,
            tensors=len(members),
            parameters=sum(parameter.numel() for parameter in members.values()),
        )
        for name, members in groups.items()
    ]


class Optimizer:
    """The optimizers of a partition as one; every group keeps its name.

    The rate of each group is 0 at first: it is the schedule's before every update.
    """

    def __init__(self, groups: Partition, config: OptimizerConfig) -> None:
        self._groups = groups
        self._is_fused = config.fused
        self._parts = [_adamw({name: groups[name] for name in groups if name != "muon"}, config)]
        if config.muon is not None and "muon" in groups:
            self._parts.append(_muon(groups["muon"], config, config.muon))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Every group of every part, as torch keeps them."""
        return [group for part in self._parts for group in part.param_groups]

    def set_rates(self, rates: Mapping[str, float]) -> dict[str, float]:
        """Give each group its rate; return the rate of each by name, as the log shows it."""
        for group in self.param_groups:
            group["lr"] = rates[group["name"]]
        return {group["name"]: group["lr"] for group in self.param_groups}

    def step(self) -> None:
        """Apply the gradients."""
        for part in self._parts:
            part.step()

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for part in self._parts:
            part.zero_grad()

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor of the state as `group/parameter/field`; empty before the first update.

        The group is part of the name, so that a state whose parameter belongs to another group is never restored.
        """
        return {
            f"{group}/{name}/{field}": value
            for group, members in self._groups.items()
            for name, parameter in members.items()
            for field, value in sorted(self._part_of(group).state.get(parameter, {}).items())
        }

    def expected_tensors(self) -> dict[str, Tensor]:
        """Return, by name, a tensor without storage of the type and shape of each that is kept after an update."""
        expected: dict[str, Tensor] = {}
        for group, members in self._groups.items():
            for name, parameter in members.items():
                for field in ("momentum_buffer",) if group == "muon" else ("exp_avg", "exp_avg_sq"):
                    expected[f"{group}/{name}/{field}"] = parameter.detach().to("meta")
                if group != "muon":
                    expected[f"{group}/{name}/step"] = torch.empty((), dtype=torch.float32, device="meta")
        return expected

    def restore_tensor(self, name: str, value: Tensor) -> None:
        """Put one tensor named by `tensors` back in its place, on the device where the optimizer keeps it."""
        group, parameter_name, field = name.split("/")
        parameter = self._groups[group][parameter_name]
        stays_on_cpu = field == "step" and not self._is_fused
        self._part_of(group).state[parameter][field] = value if stays_on_cpu else value.to(parameter.device)

    def _part_of(self, group: str) -> torch.optim.Optimizer:
        return self._parts[-1] if group == "muon" else self._parts[0]


def _adamw(groups: Partition, config: OptimizerConfig) -> torch.optim.Optimizer:
    decays = {"decay": config.weight_decay, "no_decay": 0.0}
    return torch.optim.AdamW(
        [
            {"params": list(members.values()), "weight_decay": decays[name], "name": name}
            for name, members in groups.items()
        ],
        lr=0.0,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=config.fused,
        foreach=False,
    )


def _muon(
    members: dict[str, nn.Parameter], config: OptimizerConfig, muon: MuonConfig
) -> torch.optim.Optimizer:
    return torch.optim.Muon(
        [{"params": list(members.values()), "name": "muon"}],
        lr=0.0,
        weight_decay=config.weight_decay if muon.weight_decay is None else muon.weight_decay,
        momentum=muon.momentum,
        nesterov=muon.nesterov,
        ns_steps=muon.iterations,
        adjust_lr_fn="match_rms_adamw" if muon.match_adamw else "original",
    )
