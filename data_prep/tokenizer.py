"""A `tokenizer.json`: what is known about it, and how one is made. A byte-level BPE can be trained; any can be used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from data_prep.encoding import BackEndName, EncodingRules
from data_prep.native import LibraryBackEnd, require_library
from ledger.errors import ConfigError
from ledger.records.dataset import TokenDtype, token_dtype
from ledger.storage.canonical import digest_of, sha256_hex

__all__ = ["CANARY", "LIBRARY", "Tokenizer", "train_byte_level_bpe"]

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


class Tokenizer:
    """A `tokenizer.json` and what is known about it."""

    def __init__(self, data: bytes, *, eos_token: str, path: str) -> None:
        """Load a tokenizer from the bytes of its file.

        Raises:
            InvalidDocumentError: they are not a tokenizer, or one that draws ids at random.
            ConfigError: it has no entry `eos_token`.
            EvidenceMissingError: the library is not installed.
        """
        self.data = data
        self.path = path
        self.backend = LibraryBackEnd(data, path=path)
        self.sha256 = sha256_hex(data)
        vocabulary = self.backend.tokenizer.get_vocab(with_added_tokens=True)
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

    def merges_whole(self, products: Mapping[str, int], *, ignored: bool) -> bool:
        """Tell whether merging alone makes of each text, in the model's own alphabet, the one id that is given.

        Args:
            products: texts that are one piece each, with their ids.
            ignored: whether the tokenizer ignores merges where a piece is an entry; here it may not.
        """
        model = self.backend.tokenizer.model
        if ignored:
            value = json.loads(self.data)
            value["model"]["ignore_merges"] = False
            model = LibraryBackEnd(json.dumps(value).encode(), path=self.path).tokenizer.model
        tokenize = model.tokenize
        return all([token.id for token in tokenize(text)] == [rank] for text, rank in products.items())

    def pieces(self, text: str) -> int:
        """Return how many pieces a text is split into before the model sees it."""
        return len(self.backend.tokenizer.pre_tokenizer.pre_tokenize_str(text))

    def _find_eos(self) -> int:
        eos_id = self.backend.tokenizer.token_to_id(self.eos_token)
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
    library = require_library()
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
