"""Tokenizers: text stays text, ids stay in the vocabulary, the same ids come out everywhere."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from data_prep.encoding import Encoder
from data_prep.engines.base import EncoderSpec
from data_prep.sources.document import Document, document_from
from data_prep.tokenizer import Tokenizer, train_byte_level_bpe
from ledger.errors import ConfigError, EvidenceMissingError, InvalidDocumentError
from tests.data_prep.corpus import EOS, texts


@pytest.fixture(scope="module")
def trained() -> bytes:
    return train_byte_level_bpe(texts(50), vocabulary=300, eos_token=EOS)


def load(data: bytes, eos_token: str = EOS) -> Tokenizer:
    return Tokenizer(data, eos_token=eos_token, path="tokenizer.json")


def encode(tokenizer: Tokenizer, *given: str, **rules: Any) -> list[list[int]]:
    """Return the ids of every text, end-of-text included."""
    encoder = Encoder(tokenizer.backend, rules=replace(tokenizer.rules, **rules))
    batch = encoder.encode([document_from(text, path="a.jsonl", place="line 1") for text in given])
    ends = np.cumsum(batch.lengths)[:-1]
    return [ids.tolist() for ids in np.split(batch.ids, ends)]


def edited(data: bytes, change) -> bytes:
    value = json.loads(data)
    change(value)
    return json.dumps(value).encode()


def test_training_repeats_byte_for_byte(trained):
    assert train_byte_level_bpe(texts(50), vocabulary=300, eos_token=EOS) == trained


def test_end_of_text_is_added_once_and_stays_text_inside(trained):
    tokenizer = load(trained)
    plain, literal = encode(tokenizer, "abc", f"x {EOS} y")
    assert plain[-1] == tokenizer.eos_id == 0
    assert literal.count(tokenizer.eos_id) == 1


def test_any_text_can_be_encoded_and_comes_back(trained):
    tokenizer = load(trained)
    for text in [*texts(3), "\x00\x7f\u0085", "日本語", "👩‍👩‍👧‍👦", "e\u0301"]:
        (ids,) = encode(tokenizer, text)
        assert tokenizer.backend.tokenizer.decode(ids[:-1], skip_special_tokens=False) == text


def test_the_vocabulary_is_what_the_file_holds(trained):
    tokenizer = load(trained)
    assert tokenizer.vocabulary == 300
    assert tokenizer.dtype == "uint16"


def test_a_vocabulary_beyond_two_bytes_takes_four():
    words = {EOS: 0, "[UNK]": 1, **{f"w{index}": index for index in range(2, 70_000)}}
    library = importlib.import_module("tokenizers")
    wide = library.Tokenizer(library.models.WordLevel(words, unk_token="[UNK]"))
    wide.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    tokenizer = load(wide.to_str().encode())
    assert (tokenizer.vocabulary, tokenizer.dtype) == (70_000, "uint32")
    assert encode(tokenizer, "w2 w69999 w65536") == [[2, 69_999, 65_536, 0]]


def test_an_id_outside_the_vocabulary_is_found_before_it_could_wrap(trained):
    with pytest.raises(InvalidDocumentError, match=r"a\.jsonl: line 1.*makes the id"):
        encode(load(trained), "zzz", vocabulary=60)


def test_end_of_text_made_of_text_is_refused(trained):
    loose = edited(trained, lambda v: v["added_tokens"][0].update(special=False))
    with pytest.raises(InvalidDocumentError, match="special token"):
        encode(load(loose), f"x {EOS} y")


def test_limits_of_a_given_tokenizer_cut_and_pad_nothing(trained):
    limited = edited(
        trained,
        lambda v: v.update(
            truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
            padding={
                "strategy": {"Fixed": 50},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": EOS,
            },
        ),
    )
    assert encode(load(limited), "hello world") == encode(load(trained), "hello world")


def test_the_canary_tells_tokenizers_apart(trained):
    other = train_byte_level_bpe(["completely different words"] * 9, vocabulary=300, eos_token=EOS)
    assert load(trained).canary_sha256 == load(trained).canary_sha256
    assert load(trained).canary_sha256 != load(other).canary_sha256


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"not json", b'{"version":"1.0"}', b"\x80\x04."])
def test_what_is_no_tokenizer_is_refused(data):
    with pytest.raises(InvalidDocumentError, match="not a tokenizer"):
        load(data)


def test_a_tokenizer_that_draws_at_random_is_refused(trained):
    with pytest.raises(InvalidDocumentError, match=r"tokenizer\.json: .*draws at random .*dropout 0\.1"):
        load(edited(trained, lambda value: value["model"].update(dropout=0.1)))
    assert encode(load(edited(trained, lambda value: value["model"].update(dropout=0.0))), *texts(3))


def test_an_unknown_end_of_text_is_a_matter_of_configuration(trained):
    with pytest.raises(ConfigError, match=r"tokenizer\.eos_token"):
        load(trained, eos_token="</s>")


def test_a_missing_library_says_what_to_install(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(EvidenceMissingError, match=r"pip install 'pilot-ledger\[data\]'"):
        load(trained)


def test_a_tokenizer_that_fails_on_text_is_named():
    library = importlib.import_module("tokenizers")
    tokenizer = library.Tokenizer(library.models.WordLevel({EOS: 0, "a": 1}, unk_token="[UNK]"))
    given = Tokenizer(str(tokenizer.to_str()).encode(), eos_token=EOS, path="words.json")
    with pytest.raises(InvalidDocumentError, match=r"words\.json: the tokenizer fails on text"):
        given.backend.encode(["a word"])


@pytest.mark.parametrize("is_fallback", [False, True])
def test_text_that_a_tokenizer_has_no_entry_for_is_never_dropped(is_fallback):
    """The library leaves such characters out in silence where a BPE names no entry for the unknown."""
    library = importlib.import_module("tokenizers")
    vocabulary = {EOS: 0, "a": 1, "b": 2, " ": 3, "<0x63>": 4}
    model = library.models.BPE(vocab=vocabulary, merges=[], byte_fallback=is_fallback)
    data = str(library.Tokenizer(model).to_str()).encode()
    given = Tokenizer(data, eos_token=EOS, path="letters.json")
    assert given.backend.encode(["a日b"])[0] == [1, 2]
    encoder = EncoderSpec(data, None, given.rules).build()
    documents = [
        Document(text.encode(), "corpus", f"line {n}") for n, text in enumerate(["ab", "b a", "a日b"])
    ]
    assert encoder.encode(documents[:2]).ids.tolist() == [1, 2, 0, 2, 3, 1, 0]
    with pytest.raises(InvalidDocumentError, match=r"corpus: line 2: letters\.json: .* would drop it"):
        encoder.encode(documents)
