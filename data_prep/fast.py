"""The fast back end: `tiktoken` with the entries of a byte-level BPE; no other module loads it.

`equality` says for which tokenizers it makes the ids that `tokenizers` makes; everything else runs on `native`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from data_prep.byte_pairs import BytePairs
from data_prep.encoding import BackEnd

__all__ = ["FastBackEnd"]

_UNUSED: Final = "<|unused|>"


class FastBackEnd:
    """tiktoken with the entries of a byte-level BPE."""

    def __init__(self, pairs: BytePairs, *, spare: Callable[[], BackEnd]) -> None:
        """Load the entries; `spare` loads what makes the same ids of a text on which the library gives up."""
        library = importlib.import_module("tiktoken")
        self._load_spare = spare
        # One special token that no text is searched for: with none at all the library looks at every position.
        special = {_UNUSED: max(pairs.ranks.values()) + 1}
        self._encoding = library.Encoding(
            "dataset", pat_str=pairs.pattern, mergeable_ranks=pairs.ranks, special_tokens=special
        )

    @staticmethod
    def is_installed() -> bool:
        """Tell whether the library is there."""
        return importlib.util.find_spec("tiktoken") is not None

    def encode(self, texts: Sequence[str]) -> list[NDArray[Any]]:
        """Return the ids of every text; no special token is allowed, so all of it is text."""
        return [self._ids(text) for text in texts]

    def _ids(self, text: str) -> NDArray[Any]:
        try:
            found: NDArray[Any] = self._encoding.encode_to_numpy(text, disallowed_special=())
        except ValueError:  # its regular expressions give up on, say, a million spaces in a row
            found = np.asarray(self._spare.encode([text])[0], dtype=np.uint32)
        return found

    @cached_property
    def _spare(self) -> BackEnd:
        return self._load_spare()
