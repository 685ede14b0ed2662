"""The optimizer: which parameter belongs to which group, and AdamW over the groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ledger.records.parts import OptimizerGroup

if TYPE_CHECKING:
    from trainer.config import OptimizerConfig

__all__ = [
    "Partition",
    "build_optimizer",
    "expected_optimizer_tensors",
    "optimizer_tensors",
    "partition",
    "partition_summary",
    "restore_optimizer_tensor",
    "set_learning_rate",
]

Partition = dict[str, dict[str, nn.Parameter]]
"""Group name to its parameters by name."""


def partition(model: nn.Module) -> Partition:
    """Divide the trainable parameters: `decay` has two or more dimensions, `no_decay` fewer; no empty groups."""
    groups: Partition = {"decay": {}, "no_decay": {}}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups["decay" if parameter.ndim >= 2 else "no_decay"][name] = parameter
    return {name: members for name, members in groups.items() if members}


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


def build_optimizer(groups: Partition, config: OptimizerConfig) -> torch.optim.AdamW:
    """Return AdamW (Loshchilov and Hutter 2017, arXiv:1711.05101) over the groups; each keeps its name.

    The rate starts at 0: it is the schedule's before every update.
    """
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


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> dict[str, float]:
    """Give every group this rate; return the rate of each by name, as the log shows it."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    return {str(group["name"]): rate for group in optimizer.param_groups}


def optimizer_tensors(groups: Partition, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return every tensor of the optimizer's state as `group/parameter/field`; empty before the first update.

    The group is part of the name, so that a state whose parameter belongs to another group is never restored.
    """
    return {
        f"{group}/{name}/{field}": value
        for group, members in groups.items()
        for name, parameter in members.items()
        for field, value in sorted(optimizer.state.get(parameter, {}).items())
    }


def expected_optimizer_tensors(groups: Partition) -> dict[str, Tensor]:
    """Return, by name, a tensor without storage of the type and shape of each that AdamW keeps after an update."""
    expected: dict[str, Tensor] = {}
    for group, members in groups.items():
        for name, parameter in members.items():
            for field in ("exp_avg", "exp_avg_sq"):
                expected[f"{group}/{name}/{field}"] = parameter.detach().to("meta")
            expected[f"{group}/{name}/step"] = torch.empty((), dtype=torch.float32, device="meta")
    return expected


def restore_optimizer_tensor(
    groups: Partition, optimizer: torch.optim.Optimizer, name: str, value: Tensor
) -> None:
    """Put one tensor named by `optimizer_tensors` back in its place, on the device where the optimizer keeps it."""
    group, parameter_name, field = name.split("/")
    parameter = groups[group][parameter_name]
    stays_on_cpu = field == "step" and not optimizer.defaults["fused"]
    optimizer.state[parameter][field] = value if stays_on_cpu else value.to(parameter.device)
