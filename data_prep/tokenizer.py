"""Turns text into ids with the `tokenizers` library; no other module loads it.

A byte-level BPE can be trained here; any `tokenizer.json` can be used. Text is text: a special token's name inside a
document is encoded as its characters, and nothing is cut, padded or added but the end-of-text id behind each document.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from data_prep.sources.document import Document
from ledger.errors import ConfigError, EvidenceMissingError, InvalidDocumentError
from ledger.records.dataset import TokenDtype, token_dtype
from ledger.storage.canonical import digest_of, sha256_hex

__all__ = ["BACKEND", "Tokenizer", "train_byte_level_bpe"]

BACKEND: Final = "tokenizers"

_CANARY: Final = (
    "",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog. 0123456789",
    "    def f(x):\n\treturn x ** 2  # square\r\n\r\n",
    "l'été à Zürich – naïve “quotes” … ½ ≤ ∞",
    "Ελλάδα Россия 日本語 中文 한국어 עברית العربية हिन्दी",
    "👩‍👩‍👧‍👦 🇪🇺 e\u0301 \u00e9 \u200b\ufeff\u2028",
    "\x00\x01\x7f\u0085\u00a0",
    "<|endoftext|><|im_start|></s>[CLS]<pad>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
)
"""Texts whose ids show that two builds of a tokenizer agree; changing them changes every canary digest."""


@dataclass(frozen=True)
class Encoded:
    """The ids of one document, end-of-text included."""

    document: Document
    ids: NDArray[Any]


class Tokenizer:
    """A `tokenizer.json` ready to encode."""

    def __init__(self, data: bytes, *, eos_token: str, path: str) -> None:
        """Load a tokenizer from the bytes of its file.

        Raises:
            InvalidDocumentError: they are not a tokenizer.
            ConfigError: it has no entry `eos_token`.
            EvidenceMissingError: the library is not installed.
        """
        self._library = _load(data, path=path)
        self._path = path
        self.sha256 = sha256_hex(data)
        self.vocabulary = 1 + max(self._library.get_vocab(with_added_tokens=True).values(), default=0)
        self.eos_token = eos_token
        self.eos_id = self._find_eos()
        self.dtype: TokenDtype = token_dtype(self.vocabulary)

    @property
    def canary_sha256(self) -> str:
        """Digest of the ids of fixed texts: another one means that the library makes other ids."""
        encodings = self._library.encode_batch(list(_CANARY), add_special_tokens=False)
        return digest_of([encoding.ids for encoding in encodings])

    def encode(self, documents: Sequence[Document]) -> list[Encoded]:
        """Return the ids of every document, each ended by end-of-text.

        Raises:
            InvalidDocumentError: the tokenizer made an id outside its vocabulary, or end-of-text out of text.
        """
        texts = [document.text for document in documents]
        encodings = self._library.encode_batch_fast(texts, add_special_tokens=False)
        return [
            Encoded(document, self._ended(encoding.ids, document=document))
            for document, encoding in zip(documents, encodings, strict=True)
        ]

    def _ended(self, ids: list[int], *, document: Document) -> NDArray[Any]:
        """Check ids before they are cast to the narrow type they are stored in, where they could wrap."""
        wide = np.array([*ids, self.eos_id], dtype=np.int64)
        if int(wide.max()) >= self.vocabulary or int(wide.min()) < 0:
            problem = f"{self._path} makes the id {int(wide.max())} of this document"
            expected = f"ids below its vocabulary, {self.vocabulary}"
            raise InvalidDocumentError(problem, path=document.path, place=document.place, expected=expected)
        if self.eos_id in ids:
            problem = f"{self._path} makes the end-of-text id of text inside this document"
            advice = (
                f"declare {self.eos_token!r} as a special token in it, so that its name in text stays text"
            )
            raise InvalidDocumentError(problem, path=document.path, place=document.place, advice=advice)
        return wide.astype(self.dtype)

    def _find_eos(self) -> int:
        eos_id = self._library.token_to_id(self.eos_token)
        if eos_id is None:
            problem = f"the tokenizer {self._path} has no entry {self.eos_token!r}"
            raise ConfigError(problem, place="tokenizer.eos_token", expected="the entry that ends a text")
        return int(eos_id)


def train_byte_level_bpe(texts: Iterable[str], *, vocabulary: int, eos_token: str) -> bytes:
    """Return the `tokenizer.json` of a byte-level BPE trained on `texts` (Sennrich et al. 2016; GPT-2's bytes).

    End-of-text is id 0, then come all 256 bytes, so that any text can be encoded.

    Raises:
        EvidenceMissingError: the library is not installed.
    """
    library = _require_library()
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[eos_token],
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return str(tokenizer.to_str(pretty=False)).encode()


def _load(data: bytes, *, path: str) -> Any:
    library = _require_library()
    try:
        json.loads(data)
        tokenizer = library.Tokenizer.from_buffer(data)
    except Exception as error:
        problem = f"this is not a tokenizer: {error}"
        raise InvalidDocumentError(problem, path=path, expected="a tokenizer.json") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _require_library() -> Any:
    """Load the optional library; this is the one place that does."""
    try:
        return importlib.import_module("tokenizers")
    except ModuleNotFoundError as error:
        problem = "preparing a dataset takes the library `tokenizers`, which is not installed"
        raise EvidenceMissingError(problem, advice="pip install 'pilot-ledger[data]'") from error
