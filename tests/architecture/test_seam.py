"""Files are touched through the storage seam alone, so that every failure is one clear error and can be tried."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ledger", "trainer", "data_prep")
SEAM = "ledger.storage.filesystem"

HOLDERS = {"fs", "self._fs", "job.fs", "self.fs", "OS", "super()"}
"""What the seam is called where it is used."""
METHODS = {
    *"open read_bytes read_text write_bytes write_text stat lstat exists is_file is_dir is_symlink iterdir".split(),
    *"glob rglob walk touch mkdir rmdir unlink rename symlink_to hardlink_to samefile chmod readlink".split(),
}
"""Methods of paths that ask the system for something, and of the seam."""
FUNCTIONS = {
    *"open read readv pread write writev pwrite close fsync fdatasync ftruncate truncate stat lstat fstat".split(),
    *"statvfs listdir scandir walk rename replace link symlink unlink remove rmdir mkdir makedirs removedirs".split(),
    *"access chmod chown utime fdopen readlink sendfile copy_file_range".split(),
}
"""Functions of `os` that do so."""
PATH_FUNCTIONS = {
    "exists",
    "lexists",
    "isfile",
    "isdir",
    "islink",
    "getsize",
    "getmtime",
    "samefile",
    "realpath",
}
LIBRARIES = {
    *("shutil.copy", "shutil.move", "shutil.rmtree", "tempfile.", "glob.", "mmap.", "np.load", "np.save"),
    *("np.fromfile", "np.memmap", "torch.load", "torch.save"),
}

EXCUSED = {
    "ledger.cli.main:_hint_at_dashes": "a hint beside an error",
    "ledger.cli.screen:_open_standard_streams": "standard streams",
    "ledger.cli.screen:_forget_output": "standard streams",
    "ledger.maintain.probes:_watch": "looks as fast as it can, from a thread, at a file that the seam replaces",
    "ledger.pilot.processes:_started": "what a stage's processes print, for people",
    "ledger.pilot.processes:_end_of": "what a stage's processes print, for people",
    "ledger.pilot.processes:last_logged_step": "watches a run for progress; the audit reads it for what it says",
    "ledger.pilot.processes:planned_steps": "watches a run for progress; the audit reads it for what it says",
    "ledger.recorder.environment:_processor": "a file of the system",
    "ledger.storage.lock:abandon": "a forked child lets go; nothing may go wrong there",
    "ledger.storage.log:abandon": "a forked child lets go; nothing may go wrong there",
    "ledger.storage.mounts:find_mount": "a file of the system",
    "ledger.storage.processes:boot_id": "a file of the system",
    "ledger.storage.processes:_is_zombie": "a file of the system",
    "data_prep.sources.files:_opened": "what decompresses reads from a file of Python's, over the seam's descriptor",
    "data_prep.sources.files:opened_for_seeking": "an unnamed file, gone with its process",
    "data_prep.hub:_cached_commit": "the cache of downloads, which is no record",
    "data_prep.hub:_listing": "the cache of downloads, which is no record",
    "data_prep.hub:_remembered": "the cache of downloads, which is no record",
    "data_prep.hub:fetch_file": "escapes a pattern; no file is touched",
    "data_prep.hub:_remember": "the cache of downloads, which is no record",
}
"""Functions that touch files past the seam, each with its reason."""


def past_the_seam() -> dict[str, list[str]]:
    """Return every function that touches files past the seam, with its calls."""
    found: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if module != SEAM:
                for place, call in _calls(ast.parse(path.read_text()), "module"):
                    if _touches_files(call):
                        found.setdefault(f"{module}:{place}", []).append(ast.unparse(call.func))
    return found


def _calls(node: ast.AST, place: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield every call with the innermost function around it."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef) else place
        if isinstance(child, ast.Call):
            yield inside, child
        yield from _calls(child, inside)


def _touches_files(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    if not isinstance(call.func, ast.Attribute):
        return False
    holder, method = ast.unparse(call.func.value), call.func.attr
    if holder in HOLDERS:
        return False
    if holder in ("os", "os.path"):
        return method in (FUNCTIONS if holder == "os" else PATH_FUNCTIONS)
    return method in METHODS or any(name == library or name.startswith(library) for library in LIBRARIES)


def test_nothing_touches_files_past_the_seam_without_an_excuse():
    unexcused = {place: calls for place, calls in past_the_seam().items() if place not in EXCUSED}
    assert unexcused == {}, "use a method of FileSystem, or a function of ledger.storage.files"


def test_no_excuse_is_out_of_date():
    assert EXCUSED.keys() - past_the_seam().keys() == set()


def test_the_search_finds_what_touches_files():
    source = (
        "def f(p):\n p.open()\n open(p)\n os.stat(p)\n os.path.lexists(p)\n p.is_dir()\n shutil.rmtree(p)"
    )
    assert sum(_touches_files(call) for _, call in _calls(ast.parse(source), "module")) == 6
    assert not any(_touches_files(call) for _, call in _calls(ast.parse("fs.stat(p)\nOS.open(p)"), "module"))
