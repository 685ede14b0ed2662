"""LG403: what a run states of its parameters, with log and run.json forged alike."""

from __future__ import annotations

from tests.corpus.runs.base import edited
from tests.ledger.audit.editing import Events


@edited("LG403", "plain", says="the run states 7 trainable parameters, but model.safetensors holds 1 numbers")
def more_parameters_than_the_model_holds(events: Events) -> None:
    events[0]["run"]["model"]["parameters"] = {"weight": 7}


@edited("LG403", "plain", says="the run states 0 trainable parameters, but the tensors that it trains hold 1")
def fewer_parameters_than_are_trained(events: Events) -> None:
    events[0]["run"]["model"]["parameters"] = {"weight": 0}


@edited("LG403", "plain", says="the run states 3 parameters in the optimizer's group all")
def more_parameters_in_a_group_than_its_tensors_hold(events: Events) -> None:
    events[0]["run"]["optimizer"][0]["parameters"] = 3


@edited("LG403", "plain", says="the run states 0 tensors in the optimizer's group all")
def fewer_tensors_in_a_group_than_have_state(events: Events) -> None:
    events[0]["run"]["optimizer"][0]["tensors"] = 0
