from __future__ import annotations

from pathlib import Path

import pytest

from ledger.errors import RefusedError, StorageError, UnsafeError
from ledger.storage.atomic import (
    create_file,
    is_temporary_name,
    publish_folder,
    replace_file,
    sync_file,
    temporary_path,
)
from ledger.storage.files import ensure_folder
from tests.ledger.storage.building import CountingFileSystem


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize(
    "name", [".run.json.tmp-0123456789abcdef", ".a.tmp-b.tmp-0123456789abcdef", ".a\nb.tmp-0123456789abcdef"]
)
def test_names_of_ours(name: str):
    assert is_temporary_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "run.json",
        ".run.json",
        "run.json.tmp-0123456789abcdef",
        ".run.json.tmp-0123456789abcde",
        ".x.tmp-0123456789ABCDEF",
        ".x.tmp-0123456789abcdef\n",
    ],
)
def test_names_of_others(name: str):
    assert not is_temporary_name(name)


def test_a_temporary_name_stands_beside_its_target_and_is_new():
    first, second = (temporary_path("folder/run.json") for _ in range(2))
    assert first.parent == Path("folder")
    assert is_temporary_name(first.name)
    assert first != second


def test_replace_writes_and_replaces(tmp_path: Path):
    for content in (b"one", b"", b"x" * 100_000):
        replace_file(tmp_path / "a", content)
        assert (tmp_path / "a").read_bytes() == content
    assert names(tmp_path) == ["a"]


def test_content_is_synced_before_its_name_and_the_folder_after(tmp_path: Path):
    fs = CountingFileSystem()
    replace_file(tmp_path / "a", b"one", fs=fs)
    assert fs.operations == [
        "open",
        "write",
        "fsync",
        "close",
        "rename",
        "open",
        "fsync of the folder",
        "close",
    ]
    fs.operations.clear()
    create_file(tmp_path / "b", b"one", fs=fs)
    assert fs.operations == [
        "open",
        "write",
        "fsync",
        "close",
        "link",
        "unlink",
        "open",
        "fsync of the folder",
        "close",
    ]


def test_replacing_a_link_leaves_its_target(tmp_path: Path):
    (tmp_path / "target").write_bytes(b"target")
    (tmp_path / "a").symlink_to("target")
    replace_file(tmp_path / "a", b"new")
    assert (tmp_path / "target").read_bytes() == b"target"
    assert not (tmp_path / "a").is_symlink()


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path):
    (tmp_path / "a").mkdir()
    with pytest.raises(StorageError, match="EISDIR"):
        replace_file(tmp_path / "a", b"new")
    assert names(tmp_path) == ["a"]


def test_create_writes_once(tmp_path: Path):
    assert create_file(tmp_path / "a", b"one")
    assert not create_file(tmp_path / "a", b"one")
    with pytest.raises(RefusedError, match="exists already with other content"):
        create_file(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert names(tmp_path) == ["a"]


def test_create_takes_blocks(tmp_path: Path):
    create_file(tmp_path / "a", iter([b"one", b"two"]))
    assert (tmp_path / "a").read_bytes() == b"onetwo"


def test_create_does_not_follow_a_link(tmp_path: Path):
    (tmp_path / "a").symlink_to("nowhere")
    with pytest.raises(UnsafeError):
        create_file(tmp_path / "a", b"one")
    assert names(tmp_path) == ["a"]


def test_a_missing_folder_is_named(tmp_path: Path):
    with pytest.raises(
        StorageError, match=r"could not open: No such file or directory \[ENOENT\] \(check that the path"
    ):
        replace_file(tmp_path / "no" / "a", b"one")


def test_a_path_that_is_none_is_refused(tmp_path: Path):
    with pytest.raises(UnsafeError, match="no usable path"):
        replace_file(tmp_path / "a\0b", b"one")


def test_a_folder_is_published_whole_and_never_over_another(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    publish_folder(tmp_path / "one", tmp_path / "final")
    with pytest.raises(RefusedError, match="exists already"):
        publish_folder(tmp_path / "two", tmp_path / "final")
    assert (tmp_path / "final" / "file").read_text() == "one"
    (tmp_path / "empty").mkdir()
    with pytest.raises(RefusedError):
        publish_folder(tmp_path / "two", tmp_path / "empty")


def test_ensure_folder(tmp_path: Path):
    assert ensure_folder(tmp_path / "a")
    assert not ensure_folder(tmp_path / "a")
    (tmp_path / "file").touch()
    with pytest.raises(UnsafeError, match="a file stands here"):
        ensure_folder(tmp_path / "file")


def test_sync_file_refuses_links(tmp_path: Path):
    fs = CountingFileSystem()
    (tmp_path / "a").touch()
    sync_file(tmp_path / "a", fs=fs)
    assert "fsync" in fs.operations
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(UnsafeError):
        sync_file(tmp_path / "link")
