"""Starts the engine that a configuration names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from data_prep.config import PreparationConfig
from data_prep.engines.base import Engine
from data_prep.engines.embedded import ProcessEngine, SerialEngine
from data_prep.engines.on_ray import RayEngine

__all__ = ["open_engine"]


@contextmanager
def open_engine(config: PreparationConfig) -> Iterator[Engine]:
    """Start the engine that a configuration names; its workers end with the block.

    They start while the caller finds out what they are to load, and wait for it.

    Raises:
        EvidenceMissingError: a library is not installed.
        WorkerDiedError: a worker could not start.
    """
    engine: Engine
    if config.engine == "ray":
        engine = RayEngine(workers=config.workers)
    elif config.workers == 1:
        engine = SerialEngine()
    else:
        engine = ProcessEngine(workers=config.workers)
    try:
        yield engine
    finally:
        engine.close()
