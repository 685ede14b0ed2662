"""Turns text into ids with the `tokenizers` library; no other module loads it.

A byte-level BPE can be trained here; any `tokenizer.json` can be used. Text is text: a special token's name inside a
document is encoded as its characters, and nothing is cut, padded or added but the end-of-text id behind each document.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from data_prep.encoding import BackEndName, EncodingRules
from ledger.errors import ConfigError, EvidenceMissingError, InvalidDocumentError
from ledger.records.dataset import TokenDtype, token_dtype
from ledger.storage.canonical import digest_of, sha256_hex

__all__ = ["CANARY", "LIBRARY", "LibraryBackEnd", "Tokenizer", "train_byte_level_bpe"]

LIBRARY: Final[BackEndName] = "tokenizers"

CANARY: Final = (
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


class LibraryBackEnd:
    """The library with a `tokenizer.json` loaded."""

    def __init__(self, data: bytes, *, path: str) -> None:
        """Load a tokenizer from the bytes of its file.

        Raises:
            InvalidDocumentError: they are not a tokenizer.
            EvidenceMissingError: the library is not installed.
        """
        self.library = _load(data, path=path)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of every text."""
        encodings = self.library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


class Tokenizer:
    """A `tokenizer.json` and what is known about it."""

    def __init__(self, data: bytes, *, eos_token: str, path: str) -> None:
        """Load a tokenizer from the bytes of its file.

        Raises:
            InvalidDocumentError: they are not a tokenizer.
            ConfigError: it has no entry `eos_token`.
            EvidenceMissingError: the library is not installed.
        """
        self.data = data
        self.path = path
        self.backend = LibraryBackEnd(data, path=path)
        self.sha256 = sha256_hex(data)
        vocabulary = self.backend.library.get_vocab(with_added_tokens=True)
        self.vocabulary = 1 + max(vocabulary.values(), default=0)
        self.eos_token = eos_token
        self.eos_id = self._find_eos()
        self.dtype: TokenDtype = token_dtype(self.vocabulary)

    @property
    def rules(self) -> EncodingRules:
        """What the ids of every document must be."""
        return EncodingRules(self.vocabulary, self.eos_id, self.eos_token, self.dtype, self.path)

    @property
    def canary_sha256(self) -> str:
        """Digest of the ids of fixed texts: another one means that the library makes other ids."""
        return digest_of([list(ids) for ids in self.backend.encode(CANARY)])

    def model_tokens(self, texts: Iterable[str]) -> list[list[int]]:
        """Return what merging alone makes of texts that are one piece each, in the model's own alphabet."""
        value = json.loads(self.data)
        model = self.backend.library.model
        if value["model"].get("ignore_merges"):
            value["model"]["ignore_merges"] = False
            model = _load(json.dumps(value).encode(), path=self.path).model
        return [[token.id for token in model.tokenize(text)] for text in texts]

    def pieces(self, text: str) -> int:
        """Return how many pieces a text is split into before the model sees it."""
        return len(self.backend.library.pre_tokenizer.pre_tokenize_str(text))

    def _find_eos(self) -> int:
        eos_id = self.backend.library.token_to_id(self.eos_token)
        if eos_id is None:
            problem = f"the tokenizer {self.path} has no entry {self.eos_token!r}"
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
    except Exception as error:  # the library raises this very class for whatever it cannot read
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
