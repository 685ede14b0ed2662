"""Digests are kept beside a pilot, where that is possible."""

from __future__ import annotations

from pathlib import Path

from ledger.pilot.snapshot import DigestCache
from ledger.storage.digests import hash_file


def test_where_digests_cannot_be_kept_the_file_is_read_again(tmp_path: Path):
    (tmp_path / "text").write_bytes(b"text")
    (tmp_path / "taken").mkdir()  # no file can take the place of a folder
    for _ in range(2):
        cache = DigestCache(tmp_path / "taken")
        assert cache.sha256(tmp_path / "text") == hash_file(tmp_path / "text").sha256
        cache.keep()
    assert list((tmp_path / "taken").iterdir()) == []
