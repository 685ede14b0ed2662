"""A plan reads; only who runs it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledger.pilot import Plan, plan


def test_digests_of_the_files_that_were_read_are_kept_when_asked_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text, root = tmp_path / "text", tmp_path / "out"
    text.write_bytes(b"text")
    root.mkdir()
    (tmp_path / "prepare.yaml").write_bytes(b"")
    config = tmp_path / "run.yaml"
    config.write_text("pilot: {name: trial, prepare: {configs: [prepare.yaml]}}\n", encoding="utf-8")

    def found(*_: Any) -> dict[str, Any]:
        return {"files": {"source": [["text", str(text)]]}, "config": {}, "classes": {}, "parts": {}}

    monkeypatch.setattr(plan, "ask_module", found)
    asked = Plan([config], root=root)
    assert asked.prepare_fingerprint.inputs.keys() == {"files.source"}
    assert list(root.iterdir()) == []
    asked.keep_digests()
    assert [path.name for path in root.iterdir()] == [".digests.json"]
