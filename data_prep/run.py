"""Runs a plan in a temporary folder: makes the tokenizer, chooses the back end, tokenizes, and finishes the splits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from data_prep.byte_pairs import BytePairs
from data_prep.config import TrainedTokenizer
from data_prep.encoding import BackEndName
from data_prep.engines.base import EncoderSpec, Engine
from data_prep.engines.opening import open_engine
from data_prep.engines.proven import DisprovedError, ProvenEngine
from data_prep.equality import disprove, refuse_fast, suppose_fast_pairs
from data_prep.job import Job
from data_prep.journal import Journal, JournalHead, ShardLine, read_head, resume_journal
from data_prep.manifest import build_manifest
from data_prep.shards import SplitWriter
from data_prep.sink import LeftOut, Sink, SinkRules
from data_prep.split import SplitName
from data_prep.stream import Conveyor, fill, training_texts
from data_prep.tokenizer import Tokenizer, train_byte_level_bpe
from ledger.dataset.manifest import TOKENIZER_NAME
from ledger.errors import EvidenceMissingError
from ledger.records.dataset import DatasetManifest, ShardEntry, SplitInventory
from ledger.storage.atomic import create_file
from ledger.storage.canonical import sha256_hex
from ledger.storage.files import read_regular_file
from ledger.storage.filesystem import FileSystem

__all__ = ["Outcome", "run_plan"]

_COMPARED_DOCUMENTS: Final = 16
_COMPARED_BYTES: Final = 2**14
_MAX_TOKENIZER_BYTES: Final = 2**30


@dataclass(frozen=True)
class Outcome:
    """What a run of the plan gave."""

    manifest: DatasetManifest
    backend: BackEndName
    backend_reason: str | None
    """Why it is not the fast one; null where it is."""
    resumed_shards: int


def run_plan(directory: Path, *, job: Job) -> Outcome:
    """Tokenize everything, from where an interrupted preparation of the same plan stopped."""
    try:
        with open_engine(job.config) as engine:
            return _run(directory, job=job, engine=engine)
    except DisprovedError as error:
        reason = str(error)
    if job.config.backend == "tiktoken":
        refuse_fast(reason)
    with open_engine(job.config) as engine:
        return _run(directory, job=job, engine=engine, disproof=reason)


def _run(directory: Path, *, job: Job, engine: Engine, disproof: str | None = None) -> Outcome:
    """Tokenize with the fast back end while its ids are being proven; with the other one where they were disproven."""
    tokenizer = _make_tokenizer(directory, job=job)
    head = JournalHead(
        plan_sha256=job.plan.sha256,
        tokenizer_sha256=tokenizer.sha256,
        canary_sha256=tokenizer.canary_sha256,
    )
    job.progress.stage("verify what an interrupted preparation left")
    journal = resume_journal(directory, head=head, keep=frozenset({TOKENIZER_NAME}), fs=job.fs)
    resumed = journal.shards
    pairs = disproof or _suppose_pairs(tokenizer, job=job)
    if isinstance(pairs, str):
        engine.load(EncoderSpec(tokenizer.data, None, tokenizer.rules))
        manifest = _tokenize(directory, job=job, tokenizer=tokenizer, journal=journal, engine=engine)
        return Outcome(manifest, "tokenizers", pairs, resumed)
    engine.load(EncoderSpec(tokenizer.data, pairs, tokenizer.rules))
    texts = _compared_texts(job)
    with ThreadPoolExecutor(max_workers=1) as prover:
        proof = prover.submit(disprove, pairs, tokenizer=tokenizer, texts=texts)
        proven = ProvenEngine(engine, proof=proof)
        manifest = _tokenize(directory, job=job, tokenizer=tokenizer, journal=journal, engine=proven)
        proven.require_proof()
    return Outcome(manifest, "tiktoken", None, resumed)


def _make_tokenizer(directory: Path, *, job: Job) -> Tokenizer:
    """Return the tokenizer, its file in the folder: that of an interrupted preparation if it is there."""
    config = job.config.tokenizer
    path = directory / TOKENIZER_NAME
    data = _left_tokenizer(path, plan_sha256=job.plan.sha256, fs=job.fs)
    if data is None:
        data = job.plan.given.data if job.plan.given else _train_tokenizer(job)
        if job.fs.exists(path):
            job.fs.unlink(path)
        create_file(path, data, fs=job.fs)
    name = TOKENIZER_NAME if isinstance(config, TrainedTokenizer) else getattr(config, "path", TOKENIZER_NAME)
    return Tokenizer(data, eos_token=config.eos_token, path=name)


def _left_tokenizer(path: Path, *, plan_sha256: str, fs: FileSystem) -> bytes | None:
    """Return the tokenizer that an interrupted preparation of the same plan made, if it is what it was."""
    head = read_head(path.parent, fs=fs)
    if head is None or head.plan_sha256 != plan_sha256 or not fs.exists(path):
        return None
    data = read_regular_file(path, max_bytes=_MAX_TOKENIZER_BYTES, fs=fs)
    return data if sha256_hex(data) == head.tokenizer_sha256 else None


def _train_tokenizer(job: Job) -> bytes:
    config = job.config.tokenizer
    if not isinstance(config, TrainedTokenizer):
        raise TypeError(f"{config.kind} is given, not trained")
    job.progress.stage("train the tokenizer")
    texts = training_texts(job.source.documents(), splitter=job.splitter, sample_bytes=config.sample_bytes)
    return train_byte_level_bpe(texts, vocabulary=config.vocabulary, eos_token=config.eos_token)


def _suppose_pairs(tokenizer: Tokenizer, *, job: Job) -> BytePairs | str:
    """Return what the fast back end needs where it may make the same ids, else why it is not used."""
    if job.config.backend == "tokenizers":
        return "backend=tokenizers was asked for"
    job.progress.stage("compare the back ends")
    pairs = suppose_fast_pairs(tokenizer)
    if isinstance(pairs, str) and job.config.backend == "tiktoken":
        refuse_fast(pairs)
    return pairs


def _compared_texts(job: Job) -> list[str]:
    """Return the first texts of the source that are not long."""
    documents = islice(job.source.documents(), _COMPARED_DOCUMENTS)
    return [document.text for document in documents if document.bytes <= _COMPARED_BYTES]


def _tokenize(
    directory: Path, *, job: Job, tokenizer: Tokenizer, journal: Journal, engine: Engine
) -> DatasetManifest:
    plan = job.plan.preparation
    job.progress.stage("tokenize", total=plan.train_tokens, unit="tokens")
    train = _open_sink(directory, "train", job=job, tokenizer=tokenizer, journal=journal)
    validation = _open_sink(directory, "validation", job=job, tokenizer=tokenizer, journal=journal)
    fill(
        job.source.documents(),
        splitter=job.splitter,
        shuffle=plan.shuffle,
        train=train,
        validation=validation,
        conveyor=Conveyor(engine),
        held_out=None if job.held_out is None else job.held_out.documents(),
    )
    splits = {"train": _finish(train, name="train", job=job)}
    if job.held_out is not None or plan.split.validation_fraction > 0:
        splits["validation"] = _finish(validation, name="validation", job=job)
    return build_manifest(
        job.plan,
        tokenizer=tokenizer,
        splits=splits,
        left_out=_sum(train.left_out, validation.left_out),
        shared=train.shared,
    )


def _open_sink(directory: Path, name: SplitName, *, job: Job, tokenizer: Tokenizer, journal: Journal) -> Sink:
    plan = job.plan.preparation
    last = journal.last(name)
    writer = SplitWriter(
        directory,
        name=name,
        dtype=tokenizer.dtype,
        shard_tokens=plan.shard_tokens,
        written=journal.written(name),
        on_shard=lambda shard: journal.add(_line(name, shard, sink=sink)),
        fs=job.fs,
    )
    target = plan.train_tokens if name == "train" else plan.validation_tokens
    sink = Sink(
        writer,
        rules=SinkRules(plan.length, plan.deduplicate, target),
        taken=last.taken if last else 0,
        too_many_tokens=last.too_many_tokens if last else 0,
        advance=job.progress.advance,
    )
    job.progress.advance(writer.tokens)
    return sink


def _line(name: str, shard: ShardEntry, *, sink: Sink) -> ShardLine:
    return ShardLine(
        split=name,
        shard=shard,
        taken=sink.taken,
        documents=sink.writer.documents,
        tokens=sink.writer.tokens,
        text_bytes=sink.writer.text_bytes,
        too_many_tokens=sink.too_many_tokens,
    )


def _finish(sink: Sink, *, name: str, job: Job) -> SplitInventory:
    inventory = sink.writer.finish()
    if inventory is None:
        problem = f"no document of the source fell into {name}"
        advice = "give more text, another split.key or another split.validation_fraction"
        raise EvidenceMissingError(problem, expected="at least one document that is not empty", advice=advice)
    asked, because = _asked(name, job=job)
    if asked and inventory.tokens < asked and job.config.if_short == "error":
        problem = f"the source ran out after {inventory.tokens} {name} tokens"
        advice = f"give more text, lower {name}_tokens, or set if_short=accept"
        raise EvidenceMissingError(problem, expected=f"at least {asked}, as {because} asks", advice=advice)
    return inventory


def _asked(name: str, *, job: Job) -> tuple[int | None, str]:
    """Return the tokens that a split must have, and what in the configuration says so."""
    config, planned = job.config, job.plan.preparation.train_tokens
    if name != "train":
        return config.validation_tokens, f"{name}_tokens"
    if planned == config.train_tokens:
        return planned, "train_tokens"
    return planned, f"train_tokens={config.train_tokens}, rounded up to whole groups and a last target,"


def _sum(*counts: dict[LeftOut, int]) -> dict[LeftOut, int]:
    """Return counts added up; reasons that never applied are not among them, but `empty` always is."""
    reasons: tuple[LeftOut, ...] = ("empty", "too_long", "duplicate")
    totals = {reason: sum(count[reason] for count in counts) for reason in reasons}
    return {reason: total for reason, total in totals.items() if total or reason == "empty"}
