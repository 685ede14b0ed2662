"""The engine inside this program: the calling process itself, or worker processes on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.queues import Queue
from types import ModuleType

from data_prep.encoding import EncodedBatch, Encoder
from data_prep.engines.base import BATCHES_PER_WORKER, EncoderSpec, Pending, WorkerDiedError
from data_prep.sources.document import Document

__all__ = ["ProcessEngine", "SerialEngine"]


class SerialEngine:
    """Tokenizes in the calling process."""

    name = "embedded"
    in_flight = 1

    def __init__(self) -> None:
        self._encoder: Encoder

    def load(self, spec: EncoderSpec) -> None:
        """Load the back end."""
        self._encoder = spec.build()

    def submit(self, documents: Sequence[Document]) -> Pending:
        """Return a batch that is tokenized when it is asked for."""
        return lambda: self._encoder.encode(documents)

    def close(self) -> None:
        """Nothing runs."""


class ProcessEngine:
    """Tokenizes in spawned processes, which share nothing with this one but the batches."""

    name = "embedded"

    def __init__(self, *, workers: int) -> None:
        """Start the processes; each waits for its copy of the spec."""
        self.in_flight = BATCHES_PER_WORKER * workers
        self._workers = workers
        context = multiprocessing.get_context("spawn")
        self._specs: Queue[EncoderSpec | None] = context.Queue()
        self._pool = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_start_worker, initargs=(self._specs,)
        )
        try:
            with _without_program():
                for _ in range(workers):  # a pool starts one process for each of its first jobs
                    self._pool.submit(_do_nothing)
        except BaseException as error:
            self.close()
            if isinstance(error, BrokenProcessPool):
                raise _died() from error
            if isinstance(error, OSError):
                problem = f"worker processes could not be started: {error.strerror}"
                raise WorkerDiedError(
                    problem, advice="ask for fewer workers, or raise `ulimit -u`"
                ) from error
            raise

    def load(self, spec: EncoderSpec) -> None:
        """Hand every worker what it waits for."""
        self._tell_all(spec.without_unused())

    def submit(self, documents: Sequence[Document]) -> Pending:
        """Hand a batch to a worker."""
        try:
            future = self._pool.submit(_encode, documents)
        except BrokenProcessPool as error:
            raise _died() from error
        return lambda: _result(future)

    def close(self) -> None:
        """End the workers, those that still wait for a spec too."""
        self._tell_all(None)
        self._specs.cancel_join_thread()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _tell_all(self, spec: EncoderSpec | None) -> None:
        for _ in range(self._workers):
            self._specs.put(spec)


@contextmanager
def _without_program() -> Iterator[None]:
    """Start processes that do not run the program's file again, as spawned ones do: they need nothing of it.

    It may import much, and a script that prepares where nothing keeps an import from doing so would begin again.
    """
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


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


def _start_worker(specs: Queue[EncoderSpec | None]) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told too, and ends the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    spec = specs.get()
    if spec is not None:  # null: nothing will be asked for
        _Worker.encoder = spec.build()


def _end_with_parent() -> None:
    """End this process when its parent is gone: a killed parent cannot say so itself."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _do_nothing() -> None:
    """Be a job."""


def _encode(documents: Sequence[Document]) -> EncodedBatch:
    return _Worker.encoder.encode(documents)
