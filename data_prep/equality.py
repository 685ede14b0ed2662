"""Tells whether the fast back end makes the ids of a tokenizer: it is chosen only where that is provable.

`byte_pairs` says when. The proof's remaining parts and a canary of texts are checked on this installation at every
preparation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, Final, NoReturn

import numpy as np

from data_prep.byte_pairs import BytePairs, NotBytePairsError, read_byte_pairs
from data_prep.fast import FastBackEnd
from data_prep.tokenizer import CANARY, Tokenizer
from ledger.errors import ConfigError

__all__ = ["disprove", "refuse_fast", "suppose_fast_pairs"]

_MAX_ID: Final = 2**32 - 1

_LEADS: Final = ("a", "1", ".", " ", "\n", "'")
"""A letter, a number, neither, and spaces: which of them a character joins shows its class."""

_PROBED: Final = (
    "".join(map(chr, (*range(1, 33), 0x7F, 0x85, 0xA0, 0xAA, 0xB2, 0xBC, 0x17F, 0x1680, 0x180E)))
    + "".join(map(chr, (*range(0x2000, 0x2010), 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x212A, 0x2160)))
    + "".join(map(chr, (0x3000, 0x3007, 0xFEFF, 0xFF11, 0xFB06, 0x0345, 0x0301, 0x1F600, 0x10FFFF)))
    # One of the characters that each version of Unicode since 9 brought: letters, and numbers where there are some.
    + "".join(map(chr, (0x1E900, 0x11450, 0x0860, 0x11D50, 0x10D00, 0x1E950, 0x1E100, 0x1E140, 0x10E80)))
    + "".join(map(chr, (0x11950, 0x10570, 0x1E290, 0x11F04, 0x11F50, 0x2EBF0, 0x10D4A, 0x10D40, 0x10940)))
    + "".join(map(chr, (0x0870, 0xA7C0, 0xA7CB, 0xA7CE, 0x1C89, 0x323B0, 0x11DB0, 0x11DE0, 0x33479)))
)


def suppose_fast_pairs(tokenizer: Tokenizer) -> BytePairs | str:
    """Return the byte pairs of a tokenizer if its file leaves it possible that they are enough, else why not.

    `disprove` has the rest of the proof, which takes longer.
    """
    if not FastBackEnd.is_installed():
        return "tiktoken is not installed"
    try:
        pairs = read_byte_pairs(tokenizer.data)
    except NotBytePairsError as error:
        return str(error)
    if max(pairs.ranks.values()) >= _MAX_ID:
        return "its ids leave no room for one more"
    if tokenizer.eos_id in pairs.ranks.values():
        return "end-of-text is an entry that text can make"
    return pairs


def disprove(pairs: BytePairs, *, tokenizer: Tokenizer, texts: Iterable[str] = ()) -> str | None:
    """Return why tiktoken does not make the tokenizer's ids with these byte pairs; null: it is proven that it does."""
    if not tokenizer.merges_whole(pairs.products, ignored=pairs.ignores_merges):
        return "the bytes of an entry are not merged into it"
    if not _splits_alike(tokenizer, pattern=pairs.pattern):
        return "the two libraries tell classes of characters apart differently"
    compared = [*CANARY, *texts]
    fast = FastBackEnd(pairs, spare=lambda: tokenizer.backend)
    if not _same_ids(tokenizer.backend.encode(compared), fast.encode(compared)):
        return "the two libraries make different ids of the canary"
    return None


def refuse_fast(reason: str) -> NoReturn:
    """Raise the ConfigError of a preparation that asks for tiktoken where it cannot stand in."""
    problem = f"tiktoken cannot stand in for this tokenizer: {reason}"
    raise ConfigError(problem, place="backend", advice="set backend=auto")


def _splits_alike(tokenizer: Tokenizer, *, pattern: str) -> bool:
    """Compare where both libraries split pairs of characters; entries of two bytes make tiktoken's splits visible."""
    leads = {character.encode()[0] for character in _PROBED}
    ranks = {bytes([byte]): byte for byte in range(256)}
    for first, lead in product(_LEADS, sorted(leads)):
        ranks.setdefault(first.encode() + bytes([lead]), 256 + len(ranks))
    probe = FastBackEnd(BytePairs(pattern, ranks, {}), spare=lambda: tokenizer.backend)
    for first, second in product(_LEADS, _PROBED):
        text = first + second
        (ids,) = probe.encode([text])
        if (int(ids[0]) > 255) != (tokenizer.pieces(text) == 1):
            return False
    return True


def _same_ids(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(map(np.array_equal, left, right))
