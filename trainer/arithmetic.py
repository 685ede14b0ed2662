"""What follows from a recipe before anything is built: parameters, target step, periods, memory. Imports no torch."""

from __future__ import annotations

from ledger.laws.batches import target_step
from ledger.laws.budgets import period_ends, steps_of_budget, whole_periods
from trainer.config import BudgetConfig, ModelConfig, TrainerConfig

__all__ = ["budgeted_step", "parameter_table", "period_steps", "state_bytes"]

FLOAT32_BYTES = 4


def parameter_table(model: ModelConfig) -> dict[str, int]:
    """Return the trainable parameters of each part of a model whose vocabulary is known, as the decoder has them."""
    head = model.width // model.heads
    queries_keys_values = (model.heads + 2 * model.kv_heads) * head
    table = {
        "embedding": model.vocabulary * model.width,
        "norms": (2 * model.layers + 1) * model.width,
        "attention": model.layers * model.width * (queries_keys_values + model.width),
        "feed_forward": model.layers * 3 * model.width * model.hidden,
    }
    return table if model.tied else {**table, "head": model.vocabulary * model.width}


def budgeted_step(budget: BudgetConfig, config: TrainerConfig) -> int:
    """Return the target step that a budget amounts to for a resolved recipe.

    Raises:
        ValueError: it is less than half an update.
    """
    if budget.tokens is not None:
        return target_step(budget_tokens=budget.tokens, tokens_per_update=config.tokens_per_update)
    if budget.tokens_per_parameter is None:
        raise ValueError("a budget is given either in tokens or in tokens_per_parameter")
    return steps_of_budget(
        budget.tokens_per_parameter,
        parameters=sum(parameter_table(config.model).values()),
        tokens_per_update=config.tokens_per_update,
    )


def period_steps(config: TrainerConfig) -> list[int]:
    """Return the step at which each period of the budget ends; empty where the budget has no periods.

    Raises:
        ValueError: a period holds no update.
    """
    budget = config.run.budget
    if budget is None or budget.tokens_per_parameter is None or budget.period_tokens_per_parameter is None:
        return []
    return period_ends(
        budget.period_tokens_per_parameter,
        count=whole_periods(budget.tokens_per_parameter, period=budget.period_tokens_per_parameter),
        parameters=sum(parameter_table(config.model).values()),
        tokens_per_update=config.tokens_per_update,
    )


def state_bytes(config: TrainerConfig) -> dict[str, int]:
    """Return the bytes that parameters, gradients and optimizer state take while training; activations not counted.

    Everything of these is float32 in every precision; AdamW keeps two moments of a parameter, Muon one.
    """
    table = parameter_table(config.model)
    parameters = sum(table.values())
    one_moment = table["attention"] + table["feed_forward"] if config.optimizer.muon else 0
    return {
        "parameters": FLOAT32_BYTES * parameters,
        "gradients": FLOAT32_BYTES * parameters,
        "optimizer": FLOAT32_BYTES * (2 * parameters - one_moment),
    }
