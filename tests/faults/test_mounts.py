"""Real disks: one that fills up, and ones whose power is cut."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.errors import StorageError
from ledger.storage.filesystem import OS
from tests.support.faults import LogWatch, Snapshot
from tests.support.faults_checks import check_dataset, check_passed, check_run
from tests.support.faults_mounts import (
    CuttableFileSystem,
    enlarge,
    make_image,
    mount_image,
    small_tmpfs,
    unmount,
)
from tests.support.faults_power import DiskRecorder, promised_logs
from tests.support.faults_scenarios import corpus, finish_run, prepare_dataset
from tests.support.faults_tally import TALLY
from tests.support.toy import Killed

PAGE = 4096
ENOUGH = 8 << 20
CUTS = 24
"""Power cuts on each kind of file system."""


class Unwatched(type(OS)):  # type: ignore[misc]
    """The real file system under a command that says when it is watched."""

    def __init__(self) -> None:
        self.promised: list[Path] = []

    def watch(self, *, only=None) -> None:
        del only

    def unwatch(self) -> None:
        pass

    def promise(self, path: Path) -> None:
        self.promised.append(path)


def fill_up(place: Path, pages: int) -> bool:
    """Train on a disk of so many pages; when it is full, find nothing lost, give it room and go on."""
    watch = LogWatch()
    with small_tmpfs(place, size_bytes=pages * PAGE):
        is_full = False
        with watch.listening():
            try:
                finish_run(place)
            except StorageError as error:
                is_full = "ENOSPC" in str(error)
        problems = check_run(place / "run", Snapshot(), watch, []) if (place / "run").exists() else []
        enlarge(place, size_bytes=ENOUGH)
        finish_run(place)
        problems += check_passed(place / "run")
        TALLY.add("a whole run, full tmpfs", "ENOSPC", problems=problems)
        assert not problems
    return is_full


@pytest.mark.parametrize("pages", [1, 6, 11, 15])
def test_a_run_outlives_a_full_disk(pages, tmp_path):
    assert fill_up(tmp_path / "disk", pages)


def test_a_disk_that_is_large_enough_does_not_fill_up(tmp_path):
    assert not fill_up(tmp_path / "disk", 400)


@pytest.mark.slow
def test_a_run_outlives_a_disk_that_is_full_at_any_page(tmp_path):
    assert sum(fill_up(tmp_path / "disk", pages) for pages in range(1, 20)) > 12


@pytest.mark.parametrize("pages", [1, 3, 6])
def test_a_dataset_is_whole_or_absent_on_a_full_disk(pages, tmp_path):
    corpus(tmp_path)
    shutil.rmtree(tmp_path / "work")
    with small_tmpfs(tmp_path / "work", size_bytes=pages * PAGE):
        with pytest.raises(StorageError, match="ENOSPC"):
            prepare_dataset(tmp_path, Unwatched())
        assert not check_dataset(tmp_path / "work", Snapshot(), LogWatch(), [])
        enlarge(tmp_path / "work", size_bytes=ENOUGH)
        prepare_dataset(tmp_path, Unwatched())
        assert not check_dataset(tmp_path / "work", Snapshot(), LogWatch(), [])
        assert [path.name for path in (tmp_path / "work").iterdir()] == ["data"]


@pytest.fixture
def disk(request, tmp_path) -> Iterator[tuple[Path, Path]]:
    image, mount = tmp_path / "image", tmp_path / "disk"
    make_image(request.param, image)
    mount_image(image, mount)
    yield image, mount
    unmount(mount)


def cut_once(image: Path, mount: Path, place: Path, operations: int) -> list[str]:
    """Cut the power behind so many operations of a run, mount the disk again and judge what it holds."""
    promises = DiskRecorder(mount)  # hears what was promised, sees nothing else
    fs = CuttableFileSystem(mount, operations=operations)
    with promised_logs(promises) as watch:
        try:
            finish_run(place, fs)
        except Killed:
            pass
        else:
            fs.cut()
    unmount(mount)
    mount_image(image, mount)
    told = LogWatch()
    told.attempted, told.is_tail_free = watch.attempted, True
    told.acknowledged = promises.steps[-1].data if promises.steps else b""
    problems = check_run(place / "run", Snapshot(), told, []) if place.exists() else []
    if not place.exists():
        problems += ["lost: the run"] if told.acknowledged else []
        place.mkdir()
    finish_run(place)
    return problems + check_passed(place / "run")


def cut_often(disk: tuple[Path, Path], cuts: int, kind: str) -> list[str]:
    image, mount = disk
    whole = mount / "whole"
    whole.mkdir()
    fs = CuttableFileSystem(mount)
    finish_run(whole, fs)
    chance = random.Random(5)
    found = []
    for number in range(cuts):
        place = mount / f"cut-{number}"
        place.mkdir()
        OS.sync_directory(mount)
        problems = cut_once(image, mount, place, chance.randrange(fs.count + 8))
        TALLY.add(f"a whole run, {kind} image", "power cut", problems=problems)
        found += problems
        shutil.rmtree(place)
    return found


@pytest.mark.parametrize("disk", ["ext4"], indirect=True)
def test_a_power_cut_on_a_real_disk_loses_nothing_that_was_synced(disk):
    assert not cut_often(disk, 4, "ext4")


@pytest.mark.slow
@pytest.mark.parametrize(("disk", "kind"), [("ext4", "ext4"), ("xfs", "xfs")], indirect=["disk"])
def test_no_power_cut_on_a_real_disk_loses_what_was_synced(disk, kind):
    assert not cut_often(disk, CUTS, kind)
