"""The engine that runs the workers on a Ray cluster; no other module loads `ray`.

The cluster is the one that RAY_ADDRESS names, else one on this machine for the length of the preparation. The project
must be installed, in the same version, wherever a worker may run.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from data_prep.encoding import EncodedBatch
from data_prep.engines.base import BATCHES_PER_WORKER, EncoderSpec, Pending, WorkerDiedError
from data_prep.sources.document import Document
from ledger.errors import EvidenceMissingError

__all__ = ["RayEngine"]


class RayEngine:
    """Tokenizes in Ray actors, each with the tokenizer loaded; batches go to them in turn."""

    name = "ray"

    def __init__(self, *, workers: int) -> None:
        """Join the cluster, or start one.

        Raises:
            EvidenceMissingError: the library is not installed.
            WorkerDiedError: there is no cluster and none could be started.
        """
        self.in_flight = BATCHES_PER_WORKER * workers
        self._library = _require_library()
        self._is_ours = not self._library.is_initialized()
        if self._is_ours:
            _join(self._library, workers=workers)
        self._workers = workers
        self._actors: list[Any] = []
        self._next = 0

    def load(self, spec: EncoderSpec) -> None:
        """Start the actors."""
        shared = self._library.put(spec.without_unused())
        actor = self._library.remote(_Worker)
        self._actors = [actor.remote(shared) for _ in range(self._workers)]

    def submit(self, documents: Sequence[Document]) -> Pending:
        """Hand a batch to the next actor."""
        actor = self._actors[self._next % len(self._actors)]
        self._next += 1
        reference = actor.encode.remote(list(documents))
        return lambda: self._result(reference)

    def close(self) -> None:
        """End the actors, and the cluster if it was started here."""
        if self._is_ours:
            self._library.shutdown()
            return
        for actor in self._actors:
            self._library.kill(actor)

    def _result(self, reference: Any) -> EncodedBatch:
        errors = self._library.exceptions
        try:
            found: EncodedBatch | Exception = self._library.get(reference)
        except errors.RayError as error:
            problem = f"a Ray worker ended before its batch was done: {type(error).__name__}"
            raise WorkerDiedError(
                problem, advice="see `ray status`, then run the same command again"
            ) from error
        if isinstance(found, Exception):
            raise found
        return found


def _join(library: Any, *, workers: int) -> None:
    """Join the cluster that is named, or start one on this machine."""
    address = os.environ.get("RAY_ADDRESS")
    local = {"num_cpus": workers} if address is None else {}
    try:
        library.init(include_dashboard=False, log_to_driver=False, logging_level="error", **local)
    except Exception as error:
        what = (
            "a Ray cluster could not be started here" if address is None else f"no Ray cluster at {address}"
        )
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        advice = "check RAY_ADDRESS and the load of the machine, or set engine=embedded"
        raise WorkerDiedError(f"{what}: {reason}", advice=advice) from error


class _Worker:
    """What runs in an actor."""

    def __init__(self, spec: EncoderSpec) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self._encoder = spec.build()

    def encode(self, documents: list[Document]) -> EncodedBatch | Exception:
        """Return the ids, or the error as a value: Ray would wrap one that is raised."""
        try:
            return self._encoder.encode(documents)
        except Exception as error:  # noqa: BLE001 - it is raised where the result is taken
            return error


def _require_library() -> Any:
    """Load the optional library; this is the one place that does."""
    try:
        library = importlib.import_module("ray")
    except ModuleNotFoundError as error:
        problem = "engine=ray takes the library `ray`, which is not installed"
        raise EvidenceMissingError(problem, advice="pip install 'pilot-ledger[ray]'") from error
    importlib.import_module("ray.exceptions")
    return library
