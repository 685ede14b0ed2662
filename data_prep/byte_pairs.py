"""Tells whether a tokenizer is a byte-level BPE whose ids follow from its ranks alone, as tiktoken computes them.

tiktoken merges, of all neighbours whose joined bytes are an entry, those with the lowest id. `tokenizers` merges those
that its list of merges names, the earliest first. The two agree on every text when

1. no entry is the product of two merges, and the products' ids rise in the order of the merges;
2. both halves of a merge are single bytes or products of earlier merges;
3. the bytes of every product alone are merged into that product.

Why: both apply merges in the order of their ids, since a new neighbourhood can only make greater products. Take the
first moment at which they could differ: two neighbours u, v whose joined bytes are the entry t, not named as a merge.
No merge has crossed the outer edges of u and v, so what happened between them is what happens to the bytes of t alone.
By 3 and 1 those end with the one merge that makes t; so u and v are its halves, and named.

How text is split into pieces before that is compared by pattern, and the classes of characters by probes.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["BytePairs", "NotBytePairsError", "read_byte_pairs"]

_GPT2_PATTERN: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_SIGNS: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_KNOWN_PATTERNS: Final = frozenset(
    {_GPT2_PATTERN, _CONTRACTIONS + r"\p{N}{1,3}" + _SIGNS, _CONTRACTIONS + r"\p{N}" + _SIGNS}
)
"""Patterns that both libraries' regular expressions read alike: GPT-2, Llama 3, Qwen 2."""

_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "dropout": (None, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (False,),
    "unk_token": (None,),
}


class NotBytePairsError(ValueError):
    """The tokenizer is of another kind; the message says in what."""


@dataclass(frozen=True)
class BytePairs:
    """A byte-level BPE: its split pattern and the rank of every entry, which is its id."""

    pattern: str
    ranks: dict[bytes, int]
    products: dict[str, int]
    """The products of merges in the model's alphabet."""
    ignores_merges: bool = False
    """Whether the tokenizer takes a piece that is an entry whole, without merging."""


def read_byte_pairs(data: bytes) -> BytePairs:
    """Return what a `tokenizer.json` says, where conditions 1 and 2 hold; 3 takes the library itself.

    Raises:
        NotBytePairsError: it is something else.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotBytePairsError("its file is read by its own library alone") from error
    _require(value.get("normalizer") is None, "it normalises text")
    loose = [token["content"] for token in value.get("added_tokens") or () if not token.get("special")]
    _require(not loose, f"{loose[:1]} is an added token that text is searched for")
    pattern = _pattern(value.get("pre_tokenizer") or {})
    model = value.get("model") or {}
    _require(model.get("type") == "BPE", "it is no BPE")
    for name, neutral in _NEUTRAL.items():
        _require(model.get(name) in neutral, f"{name} is set")
    products = _products(model)
    whole = len(model["vocab"]) == 256 + len(products)
    _require(whole or not model.get("ignore_merges"), "ignore_merges is set with entries that no merge makes")
    alphabet = _alphabet()
    ranks = {bytes([byte]): model["vocab"].get(character) for character, byte in alphabet.items()}
    _require(None not in ranks.values(), "some byte is no entry")
    ranks |= zip(_to_bytes(products), products.values(), strict=True)
    _require(len(set(ranks.values())) == 256 + len(products), "two entries share an id")
    return BytePairs(pattern, ranks, products, bool(model.get("ignore_merges")))


def _products(model: dict[str, Any]) -> dict[str, int]:
    """Return the product of every merge with its id, in the order of the merges."""
    vocabulary: dict[str, int] = model["vocab"]
    known = set(_alphabet())
    products: dict[str, int] = {}
    last = -1
    for merge in model["merges"]:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        product = left + right
        rank = vocabulary.get(product, -1)
        if product in known or rank <= last:
            raise NotBytePairsError(f"the entry {product!r} is not made by one merge in the order of ids")
        if left not in known or right not in known:
            raise NotBytePairsError(f"the halves of {product!r} are not made by earlier merges")
        known.add(product)
        products[product] = last = rank
    return products


def _to_bytes(products: Collection[str]) -> list[bytes]:
    """Return the bytes that entries stand for, all translated at once: one by one takes five times as long."""
    if not products:
        return []
    table = {ord(character): byte for character, byte in _alphabet().items()}
    separator = "\uffff"  # stands for no byte, and so in no product
    return [text.encode("latin-1") for text in separator.join(products).translate(table).split(separator)]


def _pattern(pre_tokenizer: dict[str, Any]) -> str:
    if _is_byte_level(pre_tokenizer, use_regex=True):
        return _GPT2_PATTERN
    steps: list[dict[str, Any]] = pre_tokenizer.get("pretokenizers") or []
    _require(
        len(steps) == 2 and _is_byte_level(steps[1], use_regex=False), "it splits text in an unknown way"
    )
    split = steps[0]
    plain = (split.get("type"), split.get("behavior"), split.get("invert")) == ("Split", "Isolated", False)
    pattern = (split.get("pattern") or {}).get("Regex") if plain else None
    _require(pattern in _KNOWN_PATTERNS, "it splits text by an unknown pattern")
    return str(pattern)


def _is_byte_level(step: dict[str, Any], *, use_regex: bool) -> bool:
    found = (step.get("type"), step.get("add_prefix_space"), step.get("use_regex", True))
    return found == ("ByteLevel", False, use_regex)


def _alphabet() -> dict[str, int]:
    """Return GPT-2's characters that stand for bytes: printable ones for themselves, the rest from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


def _require(is_so: bool, reason: str) -> None:  # noqa: FBT001 - reads as a statement
    if not is_so:
        raise NotBytePairsError(reason)
