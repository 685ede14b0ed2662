"""The fast back end: chosen only where its ids are provably the same, and then they are."""

from __future__ import annotations

import importlib
import json
import threading
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.byte_pairs import BytePairs, NotBytePairsError, read_byte_pairs
from data_prep.config import GivenTokenizer, JsonlSource, PreparationConfig
from data_prep.engines.embedded import SerialEngine
from data_prep.equality import disprove, suppose_fast_pairs
from data_prep.fast import FastBackEnd
from data_prep.pipeline import prepare
from data_prep.tokenizer import Tokenizer, train_byte_level_bpe
from ledger.errors import ConfigError
from tests.data_prep.corpus import EOS, configure, texts, write_jsonl

SHARED = Path(__file__).parents[3] / "shared" / "data"
SAMPLE = [
    *texts(60),
    Path(__file__).read_text(),
    "it's 1234567 I'LL we'RE\n\n  x\t\r\n",
    "日本語のテキスト" * 3,
]

LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
TEXTS = st.text(max_size=60) | st.text("ab 12'sS\n\r\t.,é日\u0301\u00a0", max_size=60)


def train(pattern: str | None = None, vocabulary: int = 500) -> bytes:
    if pattern is None:
        return train_byte_level_bpe(SAMPLE, vocabulary=vocabulary, eos_token=EOS)
    library = importlib.import_module("tokenizers")
    steps, tokenizer = library.pre_tokenizers, library.Tokenizer(library.models.BPE())
    split = steps.Split(library.Regex(pattern), behavior="isolated")
    tokenizer.pre_tokenizer = steps.Sequence(
        [split, steps.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[EOS],
        initial_alphabet=steps.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SAMPLE, trainer=trainer)
    return str(tokenizer.to_str()).encode()


def load(data: bytes) -> Tokenizer:
    return Tokenizer(data, eos_token=EOS, path="tokenizer.json")


def find_fast_pairs(tokenizer: Tokenizer) -> BytePairs | str:
    pairs = suppose_fast_pairs(tokenizer)
    return pairs if isinstance(pairs, str) else disprove(pairs, tokenizer=tokenizer) or pairs


def byte_pairs(tokenizer: Tokenizer) -> BytePairs:
    pairs = find_fast_pairs(tokenizer)
    assert isinstance(pairs, BytePairs)
    return pairs


def fast(tokenizer: Tokenizer) -> FastBackEnd:
    return FastBackEnd(byte_pairs(tokenizer), spare=lambda: tokenizer.backend)


TRAINED = {"GPT-2's pattern": train(), "Llama 3's pattern": train(LLAMA)}
LOADED = {name: load(data) for name, data in TRAINED.items()}
FAST = {name: fast(tokenizer) for name, tokenizer in LOADED.items()}


@pytest.mark.parametrize("name", TRAINED)
@given(text=TEXTS)
def test_the_ids_are_the_same_on_any_text(name, text):
    (slow,), (quick,) = LOADED[name].backend.encode([text]), FAST[name].encode([text])
    assert list(slow) == quick.tolist()


@pytest.mark.parametrize("character", [" ", "\n"])
def test_a_run_of_white_space_that_the_library_gives_up_on_has_the_same_ids(character):
    text = "a" + character * 400_000 + "b"
    (slow,), (quick,) = (
        LOADED["GPT-2's pattern"].backend.encode([text]),
        FAST["GPT-2's pattern"].encode([text]),
    )
    assert np.array_equal(slow, quick)


def test_ids_that_leave_no_room_are_left_to_the_library():
    def raise_last(_value, model) -> None:
        model["vocab"][max(model["vocab"], key=model["vocab"].get)] = 2**32 - 1

    assert "no room" in str(find_fast_pairs(load(edit(raise_last))))


def test_a_special_token_in_text_stays_text():
    (ids,) = FAST["GPT-2's pattern"].encode([f"x {EOS} <|unused|> y"])
    assert LOADED["GPT-2's pattern"].eos_id not in ids.tolist()
    assert int(ids.max()) < LOADED["GPT-2's pattern"].vocabulary


def test_entries_used_whole_are_no_obstacle():
    value = json.loads(TRAINED["GPT-2's pattern"])
    value["model"]["ignore_merges"] = True
    del value["model"]["vocab"][EOS]  # it gets the id behind all others then
    value["model"]["vocab"] = {text: rank - 1 for text, rank in value["model"]["vocab"].items()}
    assert not isinstance(find_fast_pairs(load(json.dumps(value).encode())), str)


def edit(change) -> bytes:
    value = json.loads(TRAINED["GPT-2's pattern"])
    change(value, value["model"])
    return json.dumps(value).encode()


def swap_first_merges(_value, model) -> None:
    model["merges"][0], model["merges"][1] = model["merges"][1], model["merges"][0]


def add_second_way(_value, model) -> None:
    left, right = next(merge for merge in model["merges"] if len(merge[0]) > 1)
    model["merges"].append([left[0], left[1:] + right])


def name_no_halves(_value, model) -> None:
    left, right = model["merges"][0]
    model["merges"].insert(0, [left + "zq", right])
    model["vocab"][left + "zq" + right] = 100_000


OTHERS = {
    "a normalizer": (lambda v, _: v.update(normalizer={"type": "NFC"}), "normalises"),
    "an added token that is searched for": (
        lambda v, _: v["added_tokens"].append({**v["added_tokens"][0], "id": 900, "special": False}),
        "searched for",
    ),
    "a prefix space": (lambda v, _: v["pre_tokenizer"].update(add_prefix_space=True), "unknown way"),
    "no splitting": (lambda v, _: v.update(pre_tokenizer=None), "unknown way"),
    "dropout": (lambda _, m: m.update(dropout=0.1), "dropout"),
    "a suffix": (lambda _, m: m.update(end_of_word_suffix="</w>"), "end_of_word_suffix"),
    "bytes missing": (lambda _, m: m["vocab"].pop("z"), "made by earlier merges|no entry"),
    "merges out of order": (swap_first_merges, "order of ids|earlier merges"),
    "two ways to an entry": (add_second_way, "one merge"),
    "a merge of nothing": (name_no_halves, "order of ids|earlier merges"),
    "another model": (lambda v, _: v.update(model={"type": "WordLevel"}), "no BPE"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_tokenizer_of_another_kind_is_left_to_the_library(name):
    change, reason = OTHERS[name]
    with pytest.raises(NotBytePairsError, match=reason):
        read_byte_pairs(edit(change))


def test_an_unknown_pattern_is_left_to_the_library():
    found = find_fast_pairs(load(train(r"\w+|\W+")))
    assert found == "it splits text by an unknown pattern"


def test_an_entry_that_its_own_bytes_do_not_reach_is_found():
    """`ab` merges before `bc`, so `abc`, made of `a` and `bc`, never comes about; tiktoken would make it."""
    library = importlib.import_module("tokenizers")
    data = other_merges()
    assert find_fast_pairs(load(data)) == "the bytes of an entry are not merged into it"
    ids = library.Tokenizer.from_buffer(data).encode("abc").ids
    (other,) = FastBackEnd(read_byte_pairs(data), spare=lambda: load(data).backend).encode(["abc"])
    assert ids != other.tolist()


def test_a_canary_that_differs_is_found(monkeypatch):
    monkeypatch.setattr(FastBackEnd, "encode", lambda _self, given: [np.array([1])] * len(given))
    monkeypatch.setattr("data_prep.equality._splits_alike", lambda *_, **__: True)
    assert "canary" in str(find_fast_pairs(LOADED["GPT-2's pattern"]))


def test_characters_that_are_told_apart_differently_are_found(monkeypatch):
    monkeypatch.setattr(Tokenizer, "pieces", lambda _self, _text: 1)
    assert "classes of characters" in str(find_fast_pairs(LOADED["GPT-2's pattern"]))


def given_tokenizer(tmp_path: Path, data: bytes, **settings: object) -> PreparationConfig:
    (tmp_path / "tokenizer.json").write_bytes(data)
    source = write_jsonl(tmp_path / "corpus.jsonl", texts(60))
    config = configure(source, **settings)
    given = GivenTokenizer(kind="file", path=str(tmp_path / "tokenizer.json"))
    return config.model_copy(update={"tokenizer": given})


def test_asking_for_it_where_it_cannot_be_is_an_error(tmp_path):
    config = given_tokenizer(tmp_path, edit(OTHERS["a normalizer"][0]), backend="tiktoken")
    with pytest.raises(ConfigError, match=r"backend.*normalises"):
        prepare(config, output=tmp_path / "data")


def other_merges() -> bytes:
    """Return a tokenizer whose file says nothing against tiktoken, which makes other ids of "abc"."""
    value = json.loads(train(vocabulary=258))
    model = value["model"]
    model["merges"] = [["a", "b"], ["b", "c"], ["a", "bc"]]
    model["vocab"] = {k: v for k, v in model["vocab"].items() if len(k) == 1 or k == EOS}
    model["vocab"] |= {"ab": 257, "bc": 258, "abc": 259}
    return json.dumps(value).encode()


def test_what_was_tokenized_before_a_disproof_is_dropped(tmp_path, monkeypatch):
    """The proof is held back until a batch was tokenized, and then fails: nothing of that batch is stored."""
    submitted = threading.Event()
    submit = SerialEngine.submit

    def note(self, documents):
        submitted.set()
        return submit(self, documents)

    def late(pairs, **others):
        assert submitted.wait(30)
        return disprove(pairs, **others)

    monkeypatch.setattr(SerialEngine, "submit", note)
    monkeypatch.setattr("data_prep.run.disprove", late)
    config = given_tokenizer(tmp_path, other_merges())
    source = write_jsonl(tmp_path / "corpus.jsonl", [f"abc {text} abc" for text in texts(60)])
    config = config.model_copy(update={"source": JsonlSource(kind="jsonl", files=[str(source)])})
    prepare(config, output=tmp_path / "data")
    prepare(config.model_copy(update={"backend": "tokenizers"}), output=tmp_path / "control")
    assert (tmp_path / "data/metadata.json").read_bytes() == (tmp_path / "control/metadata.json").read_bytes()
    notes = json.loads((tmp_path / "data/preparation.json").read_bytes())
    assert (notes["backend"], notes["backend_reason"]) == (
        "tokenizers",
        "the bytes of an entry are not merged into it",
    )
    with pytest.raises(ConfigError, match="not merged into it"):
        prepare(config.model_copy(update={"backend": "tiktoken"}), output=tmp_path / "asked")
    assert not (tmp_path / "asked").exists()


def test_without_the_library_the_other_one_does_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert find_fast_pairs(LOADED["GPT-2's pattern"]) == "tiktoken is not installed"


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the larger texts of ../shared/data are not here")
def test_gpt2_ids_are_the_same_on_real_text():
    tokenizer = load((SHARED / "gpt2-tokenizer.json").read_bytes())
    quick = fast(tokenizer)
    gzip = importlib.import_module("gzip")
    lines = gzip.decompress((SHARED / "fortunes.jsonl.gz").read_bytes()).splitlines()[:4_000]
    given = [json.loads(line)["text"] for line in lines]
    assert all(map(np.array_equal, tokenizer.backend.encode(given), quick.encode(given)))


@pytest.mark.slow
def test_every_assigned_character_is_told_apart_alike():
    """Each behind a letter, a digit, a sign and a space: a class that differs moves a boundary, and so ids."""
    characters = [chr(c) for c in range(0x32000) if unicodedata.category(chr(c)) not in {"Cs", "Co", "Cn"}]
    pairs = byte_pairs(LOADED["GPT-2's pattern"])
    ranks = {bytes([byte]): byte for byte in range(256)}
    leads = sorted({character.encode()[0] for character in characters})
    for first in "a1. ":
        for lead in leads:
            ranks.setdefault(first.encode() + bytes([lead]), 256 + len(ranks))
    probe = FastBackEnd(
        type(pairs)(pairs.pattern, ranks, {}), spare=lambda: LOADED["GPT-2's pattern"].backend
    )
    given = [first + character for character in characters for first in "a1. "]
    joined = [int(ids[0]) > 255 for ids in probe.encode(given)]
    whole = [LOADED["GPT-2's pattern"].pieces(text) == 1 for text in given]
    assert joined == whole
