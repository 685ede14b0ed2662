"""The back end that reads any `tokenizer.json`: the library `tokenizers`; no other module loads it.

Text is text: a special token's name in it is encoded as its characters, and nothing is cut, padded or added.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

from ledger.errors import EvidenceMissingError, InvalidDocumentError

__all__ = ["LibraryBackEnd", "require_library"]

_GAP: Final = "\uffff<no entry for this text>\uffff"


class LibraryBackEnd:
    """The library with a `tokenizer.json` loaded."""

    def __init__(self, data: bytes, *, path: str, is_strict: bool = False) -> None:
        """Load a tokenizer from the bytes of its file.

        Args:
            data: the bytes.
            path: its name in messages.
            is_strict: refuse text for which it has no entry where it would drop that in silence.

        Raises:
            InvalidDocumentError: they are not a tokenizer, or one that draws ids at random.
            EvidenceMissingError: the library is not installed.
        """
        self.tokenizer = _load(data, path=path)
        self._path = path
        if is_strict:
            _forbid_gaps(self.tokenizer)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of every text.

        Raises:
            InvalidDocumentError: the tokenizer has no ids for one of them.
        """
        try:
            encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        except Exception as error:  # the library raises this very class for whatever it cannot do
            problem = f"the tokenizer fails on text: {error}"
            if _GAP in str(error):
                problem = "the tokenizer has no entry for some of this text, and would drop it"
            raise InvalidDocumentError(problem, path=self._path, advice="repair or replace it") from error
        return [encoding.ids for encoding in encodings]


def require_library() -> Any:
    """Load the optional library; this is the one place that does."""
    try:
        return importlib.import_module("tokenizers")
    except ModuleNotFoundError as error:
        problem = "preparing a dataset takes the library `tokenizers`, which is not installed"
        raise EvidenceMissingError(problem, advice="pip install 'pilot-ledger[data]'") from error


def _forbid_gaps(library: Any) -> None:
    """Have a BPE without an entry for the unknown look for one that is not there, which the library refuses."""
    model = library.model
    if type(model).__name__ == "BPE" and model.unk_token is None:
        model.unk_token = _GAP


def _require_determinate(model: Any, *, path: str) -> None:
    """Refuse what a subword regularization draws anew each time: nobody could make the same ids again."""
    for name in ("dropout", "alpha"):
        if value := getattr(model, name, None):
            problem = f"this tokenizer draws at random how it splits a text ({name} {value:g})"
            advice = f"take {name} out of a copy of it, and name that"
            raise InvalidDocumentError(
                problem, path=path, expected="the same ids for the same text", advice=advice
            )


def _load(data: bytes, *, path: str) -> Any:
    library = require_library()
    try:
        tokenizer = library.Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises this very class for whatever it cannot read
        problem = f"this is not a tokenizer: {error}"
        raise InvalidDocumentError(problem, path=path, expected="a tokenizer.json") from error
    _require_determinate(tokenizer.model, path=path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer
