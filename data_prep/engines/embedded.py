"""The engine inside this program: the calling process itself, or worker processes on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from data_prep.encoding import EncodedBatch, Encoder
from data_prep.engines.base import BATCHES_PER_WORKER, EncoderSpec, Pending, WorkerDiedError
from data_prep.sources.document import Document

__all__ = ["ProcessEngine", "SerialEngine"]


class SerialEngine:
    """Tokenizes in the calling process."""

    name = "embedded"
    in_flight = 1

    def __init__(self, spec: EncoderSpec) -> None:
        self._encoder = spec.build()

    def submit(self, documents: Sequence[Document]) -> Pending:
        """Return a batch that is tokenized when it is asked for."""
        return lambda: self._encoder.encode(documents)

    def close(self) -> None:
        """Nothing runs."""


class ProcessEngine:
    """Tokenizes in spawned processes, which share nothing with this one but the batches."""

    name = "embedded"

    def __init__(self, spec: EncoderSpec, *, workers: int) -> None:
        self.in_flight = BATCHES_PER_WORKER * workers
        self._pool = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(spec.without_unused(),),
        )

    def submit(self, documents: Sequence[Document]) -> Pending:
        """Hand a batch to a worker."""
        try:
            future = self._pool.submit(_encode, documents)
        except BrokenProcessPool as error:
            raise _died() from error
        return lambda: _result(future)

    def close(self) -> None:
        """End the workers."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _result(future: Future[EncodedBatch]) -> EncodedBatch:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise _died() from error


def _died() -> WorkerDiedError:
    problem = "a worker process ended before its batch was done (killed, or out of memory)"
    advice = "run the same command again: what is complete is kept; with fewer workers if memory ran out"
    return WorkerDiedError(problem, advice=advice)


class _Worker:
    """What a worker process holds."""

    encoder: Encoder


def _start_worker(spec: EncoderSpec) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told too, and ends the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _Worker.encoder = spec.build()


def _end_with_parent() -> None:
    """End this process when its parent is gone: a killed parent cannot say so itself."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(documents: Sequence[Document]) -> EncodedBatch:
    return _Worker.encoder.encode(documents)
