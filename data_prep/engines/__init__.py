"""Engines: what runs the tokenization of a plan. The bytes are the same, whichever it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from data_prep.config import PreparationConfig
from data_prep.engines.base import EncoderSpec, Engine, Pending, WorkerDiedError
from data_prep.engines.embedded import ProcessEngine, SerialEngine
from data_prep.engines.on_ray import RayEngine

__all__ = ["EncoderSpec", "Engine", "Pending", "WorkerDiedError", "open_engine"]


@contextmanager
def open_engine(config: PreparationConfig, *, spec: EncoderSpec) -> Iterator[Engine]:
    """Start the engine that a configuration names; its workers end with the block.

    Raises:
        EvidenceMissingError: a library is not installed.
        WorkerDiedError: a worker could not start.
    """
    engine: Engine
    if config.engine == "ray":
        engine = RayEngine(spec, workers=config.workers)
    elif config.workers == 1:
        engine = SerialEngine(spec)
    else:
        engine = ProcessEngine(spec, workers=config.workers)
    try:
        yield engine
    finally:
        engine.close()
