"""Engines: the same bytes for any number of workers, in order, a bounded number of batches in flight, clean deaths."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.config import GivenTokenizer
from data_prep.encoding import EncodedBatch
from data_prep.engines.base import EncoderSpec, WorkerDiedError
from data_prep.engines.opening import open_engine
from data_prep.pipeline import prepare
from data_prep.progress import Quiet
from data_prep.shards import SplitWriter
from data_prep.sink import Sink, SinkRules
from data_prep.sources.document import Document
from data_prep.split import Splitter
from data_prep.stream import Conveyor, fill
from data_prep.tokenizer import Tokenizer, train_byte_level_bpe
from ledger.errors import EvidenceMissingError, InvalidDocumentError
from ledger.records.dataset import LengthRule, ShuffleRule
from ledger.storage.processes import is_process_alive
from tests.data_prep.corpus import EOS, configure, overrides, texts, write_jsonl

ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "corpus.jsonl", texts(150))


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "preparation.json"}


def notes(directory: Path) -> dict[str, object]:
    return json.loads((directory / "preparation.json").read_bytes())


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_any_number_of_workers_makes_the_same_bytes(workers, source, tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.stream.BATCH_DOCUMENTS", 7)
    prepare(configure(source, train_tokens=2_000), output=tmp_path / "one")
    prepare(configure(source, train_tokens=2_000, workers=workers), output=tmp_path / "more")
    assert files(tmp_path / "one") == files(tmp_path / "more")
    assert notes(tmp_path / "more")["workers"] == workers
    assert multiprocessing.active_children() == []


def test_both_back_ends_make_the_same_bytes(source, tmp_path):
    prepare(configure(source, backend="tokenizers"), output=tmp_path / "slow")
    prepare(configure(source), output=tmp_path / "fast")
    assert files(tmp_path / "slow") == files(tmp_path / "fast")
    assert [notes(tmp_path / name)["backend"] for name in ("slow", "fast")] == ["tokenizers", "tiktoken"]


class Murderer(Quiet):
    """Kills a worker as soon as something was tokenized."""

    def __init__(self) -> None:
        self._is_armed = False

    def stage(self, name: str, **_options: object) -> None:
        self._is_armed = name == "tokenize"

    def advance(self, _amount: int) -> None:
        children = multiprocessing.active_children()
        if self._is_armed and children:
            self._is_armed = False
            assert children[0].pid is not None
            os.kill(children[0].pid, signal.SIGKILL)


def test_the_death_of_a_worker_fails_the_preparation_cleanly(source, tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.stream.BATCH_DOCUMENTS", 3)
    config = configure(source, workers=2, shard_tokens=100)
    with pytest.raises(WorkerDiedError, match="a worker process ended"):
        prepare(config, output=tmp_path / "data", progress=Murderer())
    assert not (tmp_path / "data").exists()
    assert multiprocessing.active_children() == []
    prepare(config, output=tmp_path / "data")
    prepare(configure(source, shard_tokens=100), output=tmp_path / "control")
    assert files(tmp_path / "data") == files(tmp_path / "control")


@pytest.mark.slow
def test_workers_killed_at_random_moments_end_with_the_same_bytes(tmp_path):
    """Killed from before they load anything to behind the last batch: a clear error and nothing, or the dataset."""
    source = write_jsonl(tmp_path / "corpus.jsonl", texts(4_000))
    config, draw = configure(source, workers=2, shard_tokens=2_000), random.Random(5)
    prepare(configure(source, shard_tokens=2_000), output=tmp_path / "control")
    for _ in range(6):
        killer = threading.Timer(draw.uniform(0, 2), kill_a_worker)
        killer.start()
        with suppress(WorkerDiedError):
            prepare(config, output=tmp_path / "data")
        killer.join()
        assert multiprocessing.active_children() == []
        if (tmp_path / "data").exists():
            break
    prepare(config, output=tmp_path / "data")
    assert files(tmp_path / "data") == files(tmp_path / "control")


def kill_a_worker() -> None:
    for child in multiprocessing.active_children()[:1]:
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)


def test_an_error_in_a_worker_names_the_document(tmp_path, source):
    prepare(configure(source), output=tmp_path / "first")
    value = json.loads((tmp_path / "first" / "tokenizer.json").read_bytes())
    value["added_tokens"][0]["special"] = False
    (tmp_path / "loose.json").write_text(json.dumps(value))
    given = GivenTokenizer(kind="file", path=str(tmp_path / "loose.json"))
    config = configure(source, workers=2).model_copy(update={"tokenizer": given})
    with pytest.raises(InvalidDocumentError, match=r"corpus\.jsonl: line 2.*end-of-text"):
        prepare(config, output=tmp_path / "data")


class Counting:
    """An engine whose ids are the bytes of a text; it remembers how many batches were in flight at once."""

    name = "counting"

    def __init__(self, in_flight: int) -> None:
        self.in_flight = in_flight
        self.most = self.now = 0

    def load(self, spec) -> None:
        """Nothing is needed."""

    def submit(self, documents):
        self.now += 1
        self.most = max(self.most, self.now)
        data = [[*document.data, 256] for document in documents]

        def result() -> EncodedBatch:
            self.now -= 1
            ids = np.array([number for ids in data for number in ids], dtype=np.uint16)
            return EncodedBatch(ids, [len(ids) for ids in data])

        return result

    def close(self) -> None:
        """Nothing runs."""


def run(folder: Path, documents, *, in_flight: int, batch: int, target: int | None, **rules):
    """Fill two sinks; return what they hold and the most batches in flight."""
    sinks: list[Sink] = []
    for name in ("train", "validation"):
        folder_of = folder / f"{name}-{in_flight}-{batch}"
        folder_of.mkdir()
        writer = SplitWriter(folder_of, name=name, dtype="uint16", shard_tokens=200)
        sinks.append(Sink(writer, rules=SinkRules(LengthRule(**rules), False, target)))
    engine = Counting(in_flight)
    splitter = Splitter(key="k", validation_fraction=0.3)
    shuffle = ShuffleRule(seed=3, buffer=9)
    fill(
        documents,
        splitter=splitter,
        shuffle=shuffle,
        train=sinks[0],
        validation=sinks[1],
        conveyor=Conveyor(engine, documents=batch),
    )
    inventories = [sink.writer.finish() for sink in sinks]
    return inventories, [sink.left_out for sink in sinks], engine


def documents(count: int, *, bad: int | None = None):
    for index in range(count):
        if index == bad:
            raise InvalidDocumentError("this one is bad", path="a", place=f"line {index}")
        yield Document((f"{index} " * (index % 7)).encode(), "a", f"line {index}")


@settings(max_examples=40)
@given(in_flight=st.integers(1, 8), batch=st.integers(1, 20), target=st.none() | st.integers(1, 500))
def test_what_is_stored_depends_on_the_order_alone(in_flight, batch, target, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sinks")
    control = run(folder, documents(80), in_flight=1, batch=1_000, target=target)
    found = run(folder, documents(80), in_flight=in_flight, batch=batch, target=target)
    assert found[:2] == control[:2]
    assert found[2].most <= in_flight
    assert found[2].now == 0


@settings(max_examples=40)
@given(
    in_flight=st.integers(1, 8), batch=st.integers(1, 20), bad=st.integers(1, 79), target=st.integers(1, 400)
)
def test_whether_a_bad_document_counts_depends_on_the_order_alone(
    in_flight, batch, bad, target, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("sinks")

    def outcome(in_flight: int, batch: int):
        try:
            return run(folder, documents(80, bad=bad), in_flight=in_flight, batch=batch, target=target)[:2]
        except InvalidDocumentError as error:
            return str(error)

    assert outcome(in_flight, batch) == outcome(9, 1)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="children are found through /proc")
def test_workers_end_with_a_parent_that_was_killed(source, tmp_path):
    sets = [part for text in overrides(source, workers=2, shard_tokens=100) for part in ("--set", text)]
    (tmp_path / "empty.yaml").write_text("shard_tokens: 100\n")
    command = [sys.executable, "-P", "-m", "data_prep", "prepare", "--config", str(tmp_path / "empty.yaml")]
    process = subprocess.Popen([*command, *sets, "--output", str(tmp_path / "data")], cwd=ROOT)
    deadline = time.monotonic() + 60
    children: list[int] = []
    while time.monotonic() < deadline and len(children) < 3 and process.poll() is None:
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        children = [int(pid) for pid in listed]
        time.sleep(0.005)
    process.kill()
    process.wait()
    while time.monotonic() < deadline and any(map(is_process_alive, children)):
        time.sleep(0.05)
    assert not any(map(is_process_alive, children))


def test_ray_that_is_not_installed_says_what_to_install(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EvidenceMissingError, match=r"pip install 'pilot-ledger\[ray\]'"):
        prepare(configure(source, engine="ray"), output=tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("address", [None, "10.0.0.1:6379"])
def test_a_ray_cluster_that_is_not_there_is_one_clear_error(address, source, tmp_path, monkeypatch):
    def fail(**_: object) -> None:
        raise ConnectionError("nobody answers\nat all")

    library = SimpleNamespace(is_initialized=lambda: False, init=fail)
    monkeypatch.setitem(sys.modules, "ray", library)
    monkeypatch.setitem(sys.modules, "ray.exceptions", library)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(WorkerDiedError, match=r"Ray cluster .*: nobody answers \(check RAY_ADDRESS"):
        prepare(configure(source, engine="ray"), output=tmp_path / "data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl"]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_ray_makes_the_same_bytes(source, tmp_path):
    """In a process of its own: Ray leaves threads and sockets behind in the one that used it."""
    prepare(configure(source, train_tokens=2_000), output=tmp_path / "one")
    settings = overrides(source, train_tokens=2_000, engine="ray", workers=2)
    sets = [part for text in settings for part in ("--set", text)]
    (tmp_path / "empty.yaml").write_text("shard_tokens: 500\n")
    command = [sys.executable, "-P", "-m", "data_prep", "prepare", "--config", str(tmp_path / "empty.yaml")]
    found = subprocess.run(
        [*command, *sets, "--output", str(tmp_path / "ray")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert files(tmp_path / "one") == files(tmp_path / "ray")
    assert notes(tmp_path / "ray")["engine"] == "ray"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="descendants are found through /proc")
@pytest.mark.parametrize("victim", ["driver", "worker"])
def test_a_killed_preparation_on_ray_goes_on_with_the_same_bytes(victim, tmp_path):
    """Killed at a random moment behind its first shards; nothing is left under the final name, nor any process."""
    source = write_jsonl(tmp_path / "corpus.jsonl", texts(9_000))  # nine batches
    settings = {"shard_tokens": 400}
    prepare(configure(source, **settings), output=tmp_path / "control")
    sets = [
        part for text in overrides(source, engine="ray", workers=2, **settings) for part in ("--set", text)
    ]
    (tmp_path / "empty.yaml").write_text("shard_tokens: 400\n")
    (tmp_path / "work").mkdir()
    output = tmp_path / "work" / "data"
    command = [sys.executable, "-P", "-m", "data_prep", "prepare", "--config", str(tmp_path / "empty.yaml")]
    process = subprocess.Popen([*command, *sets, "--output", str(output)], cwd=ROOT, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        if len(list(output.parent.glob(".data.tmp-*/train-*.npy"))) >= 2:
            break
        time.sleep(0.002)
    time.sleep(random.random() / 20)
    family = descendants(process.pid)
    actors = [pid for pid, name in family.items() if name.startswith("ray::_Worker")]
    for pid in [process.pid] if victim == "driver" else actors[:1]:
        os.kill(pid, signal.SIGKILL)
    _, told = process.communicate(timeout=120)
    if b"could not be started here" in told:
        pytest.skip("Ray does not start on a machine with this load")
    if process.returncode != 0:  # else it was done before the blow fell
        assert not output.exists()
        assert process.returncode == (-signal.SIGKILL if victim == "driver" else 1), told
        assert victim == "driver" or b"Ray worker ended" in told
    while time.monotonic() < deadline and any(map(is_process_alive, family)):
        time.sleep(0.1)
    assert not [pid for pid in family if is_process_alive(pid)]
    prepare(configure(source, **settings), output=output)
    assert files(output) == files(tmp_path / "control")


def descendants(pid: int) -> dict[int, str]:
    """Return the processes below one that still live, with what each calls itself."""
    found: dict[int, str] = {}
    pending = [pid]
    while pending:
        with suppress(OSError):  # it ended meanwhile
            parent = pending.pop()
            for text in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
                pending.append(int(text))
                found[int(text)] = Path(f"/proc/{text}/cmdline").read_text().replace("\0", " ")
    return found


def test_a_preparation_that_fails_before_anything_is_loaded_ends_its_workers(source, tmp_path):
    config = configure(source, workers=2, tokenizer__eos_token="a", tokenizer__vocabulary=257)
    given = GivenTokenizer(kind="file", path=str(source))
    with pytest.raises(InvalidDocumentError, match="not a tokenizer"):
        prepare(config.model_copy(update={"tokenizer": given}), output=tmp_path / "data")
    assert multiprocessing.active_children() == []


def test_a_script_that_nothing_guards_can_prepare_with_workers(source, tmp_path):
    """Spawned processes run the program's file again; ours must not, or they would begin the same preparation."""
    settings = overrides(source, workers=2)
    (tmp_path / "script.py").write_text(
        "from data_prep.config import PreparationConfig\nfrom data_prep.pipeline import prepare\n"
        "from ledger.config import load_config\n"
        f"print(prepare(load_config([], {settings!r}, model=PreparationConfig), output='data').outcome)\n"
    )
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("prepared\n", "")


def test_a_worker_loads_little_more_than_its_back_end():
    command = [sys.executable, "-P", "-c", "import sys, data_prep.engines.embedded; print(*sys.modules)"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"pydantic", "typer", "rich", "pyarrow", "ruamel.yaml"} & set(found.stdout.split())


def test_a_preparation_that_fails_ends_its_workers(source):
    config = configure(source, workers=2)
    data = train_byte_level_bpe(texts(5), vocabulary=260, eos_token=EOS)
    spec = EncoderSpec(data, None, Tokenizer(data, eos_token=EOS, path="tokenizer.json").rules)

    def fail() -> None:
        with open_engine(config) as engine:
            engine.load(spec)
            assert engine.submit([Document(b"abc", "a", "line 1")])().lengths[0] > 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert multiprocessing.active_children() == []
