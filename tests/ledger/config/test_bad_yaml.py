"""Every malformed configuration gets one clear error that says where and what to do; nothing else escapes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ledger.config import load_config
from ledger.errors import ConfigError
from tests.ledger.config.models import Experiment

GOOD = b"optimizer:\n  lr: 1e-3\n"

# What the file holds, the place that the error names (None: the file as a whole), and what it says.
REFUSED = {
    "Y01 empty": (b"", "line 1", "holds no settings"),
    "Y01 comment": (b"# nothing\n", "line 1", "holds no settings"),
    "Y02 scalar": (b"5\n", "line 1, column 1", "a single value at its top"),
    "Y02 null": (b"null\n", "line 1, column 1", "a single value at its top"),
    "Y02 list": (b"- 1\n", "line 1, column 1", "a list at its top"),
    "Y04 duplicate": (GOOD + b"batch: 1\nbatch: 2\n", "line 4, column 1", "first is at line 3"),
    "Y05 nested duplicate": (b"optimizer:\n  lr: 1\n  'lr': 2\n", "line 3, column 3", "duplicate key 'lr'"),
    "Y09 key on": (GOOD + b"on: 1\n", "line 3, column 1", "unknown key on"),
    "Y10 sexagesimal": (GOOD + b"batch: 12:30:45\n", "line 3", "expected a valid integer"),
    "Y12 leading zero": (GOOD + b"batch: 017\n", "line 3, column 8", "leading zero"),
    "Y13 octal": (GOOD + b"batch: 0o17\n", "line 3, column 8", "not decimal"),
    "Y14 underscores": (GOOD + b"batch: 1_000_000\n", "line 3, column 8", "holds underscores"),
    "Y16 digits": (GOOD + b"country: 12345678\n", "line 3", "quote it if text is meant"),
    "Y17 infinite": (GOOD + b"country: 1234e5678\n", "line 3, column 10", "too large"),
    "Y17 zero": (GOOD + b"country: 00e12345\n", "line 3, column 10", "leading zero"),
    "Y17 vanishing": (GOOD + b"country: 1e-999\n", "line 3, column 10", "too small"),
    "Y18 date": (GOOD + b"batch: 2024-01-01\n", "line 3", "expected a valid integer"),
    "Y20 tilde": (b"optimizer: {lr: ~}\n", "line 1", "optimizer.lr is null"),
    "Y20 nothing": (b"optimizer:\n", "line 1", "optimizer is null; expected a mapping"),
    "Y21 null key": (GOOD + b"~: 1\n", "line 3, column 1", "is not text"),
    "Y21 int key": (GOOD + b"weights: {1: 1, '1': 2}\n", "line 3, column 11", "the key '1' is not text"),
    "Y22 tab": (b"optimizer:\n\tlr: 1\n", "line 2, column 1", "indent with spaces"),
    "Y24 tag": (GOOD + b"country: !foo x\n", "line 3, column 10", "the tag !foo is not allowed"),
    "Y24 binary": (GOOD + b"country: !!binary aGk=\n", "line 3, column 10", "the tag !!binary"),
    "Y24 set": (GOOD + b"weights: !!set {a, b}\n", "line 3, column 10", "the tag !!set"),
    "Y24 python": (b"!!python/object/apply:os.system [id]\n", "line 1", "the tag !!python"),
    "Y25 bomb": (b"a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n", "line 1, column 4", "not allowed"),
    "Y26 merge key": (GOOD + b"weights: {<<: {a: 1}}\n", "line 3, column 11", "merge keys"),
    "Y28 undefined alias": (GOOD + b"country: *a\n", "line 3, column 10", "write the value out"),
    "Y29 NUL": (GOOD + b"country: a\0b\n", "line 3, column 11", "U+0000"),
    "Y29 escaped": (GOOD + b'country: "a\\0b"\n', "line 3, column 10", "U+0000"),
    "Y30 not UTF-8": (GOOD + b"country: \xff\n", "line 3", "offset 31 is not UTF-8"),
    "Y30 UTF-16": (GOOD.decode().encode("utf-16"), "line 1", "not UTF-8"),
    "Y30 byte order mark": (b"\xef\xbb\xbf" + GOOD, "line 1, column 1", "U+FEFF"),
    "Y32 digits": (GOOD + b"batch: " + b"9" * 5_000, "line 3, column 8", "5000 characters) is out of range"),
    "Y33 depth": (b"weights: " + b"[" * 3_000, "line 1, column 41", "nested more than 32 levels"),
    "Y34 size": (GOOD + b" " * 2**20, None, "at most 1 MiB"),
    "Y36 bool for int": (GOOD + b"batch: true\n", "line 3", "batch is true; expected a valid integer"),
    "Y36 bool for float": (b"optimizer: {lr: true}\n", "line 1", "optimizer.lr is true"),
    "Y36 text for float": (b"optimizer: {lr: '1'}\n", "line 1", "without quotes"),
    "Y36 text for bool": (GOOD + b"compiled: yes\n", "line 3", "write true or false"),
    "Y36 list for scalar": (GOOD + b"batch: [1]\n", "line 3", "batch is a list"),
    "Y36 float for int": (GOOD + b"batch: 1e3\n", "line 3", "write 1000"),
    "Y37 range": (b"optimizer: {lr: -1}\n", "line 1", "expected greater than 0"),
    "Y37 batch": (GOOD + b"batch: 0\n", "line 3", "greater than or equal to 1"),
    "Y40 next line": (GOOD + b"country: a\xc2\x85b\n", "line 3, column 11", "U+0085"),
    "Y41 equals": (GOOD + b"country: =\n", "line 3, column 10", "quote it"),
    "Y41 colons": (b"a: b: c\n", "line 1, column 5", "quote a value that holds a colon"),
    "Y41 unclosed": (b"layers: [1,\n", "line 2", "not valid YAML"),
    "Y41 two scalars": (b'"x" y\n', "line 1, column 5", "not valid YAML"),
    "Y42 users": (GOOD + b'country: "C:\\Users"\n', "line 3", "single quotes for a Windows path"),
    "Y42 temp": (GOOD + b'country: "C:\\temp"\n', "line 3, column 10", "single quotes for a Windows path"),
    "Y44 complex key": (GOOD + b"? [1, 2]\n: 3\n", "line 3, column 3", "used as a key"),
    "two documents": (GOOD + b"---\nbatch: 1\n", "line 3, column 1", "a second document"),
    "directive": (b"%YAML 1.1\n---\n" + GOOD, "line 2", "YAML 1.2"),
    "conflict": (b"<<<<<<< ours\n" + GOOD, "line 1", "merge-conflict markers"),
    "not a number": (b"optimizer: {lr: .nan}\n", "line 1, column 17", "not a finite number"),
    "surrogate": (GOOD + b'country: "\\ud800"\n', "line 3, column 10", "surrogate"),
    "too few": (b"optimizer: {lr: 1, betas: [1]}\n", "line 1", "optimizer.betas has too few items"),
    "union": (GOOD + b"workers: some\n", "line 3", "expected a valid integer or 'auto'"),
    "across fields": (GOOD + b"workers: 8\n", None, "as many workers as sequences"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_malformed_file_is_refused_with_its_place(case: str, tmp_path: Path):
    content, place, says = REFUSED[case]
    path = tmp_path / "experiment.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(says)) as refusal:
        load_config([path], model=Experiment)
    assert str(refusal.value).startswith(f"{path}: {place or ''}")
    assert len(str(refusal.value).splitlines()) == 1
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"no", "no"),
        (b"12:30:45", "12:30:45"),
        (b"2024-01-01", "2024-01-01"),
        (b"'017'", "017"),
        (b"${HOME}", "${HOME}"),
        (b"~/x", "~/x"),
        (b"$(id)", "$(id)"),
        (b"'C:\\temp'", "C:\\temp"),
        (b"a  # said", "a"),
        ("é \U0001f600".encode(), "é \U0001f600"),
        (b"|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_text_stays_the_text_that_was_written(written: bytes, read: str, tmp_path: Path):
    path = tmp_path / "experiment.yaml"
    path.write_bytes(GOOD + b"country: " + written + b"\n")
    assert load_config([path], model=Experiment).country == read


@pytest.mark.parametrize(("written", "read"), [(b"1", 1.0), (b"1e-3", 0.001), (b".5", 0.5), (b"+1.", 1.0)])
def test_every_spelling_of_a_number_is_a_float(written: bytes, read: float, tmp_path: Path):
    path = tmp_path / "experiment.yaml"
    path.write_bytes(b"optimizer:\r\n  lr: " + written + b"\r\n")
    rate = load_config([path], model=Experiment).optimizer.lr
    assert (rate, type(rate)) == (read, float)


def test_what_looks_like_a_variable_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "experiment.yaml"
    path.write_bytes(GOOD + b"country: ${HOME}\n")
    load_config([path], model=Experiment)
    assert "country: '${HOME}' is taken literally" in caplog.text


def test_absent_folder_and_pipe_are_refused_at_once(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, says in (
        (tmp_path / "absent.yaml", "no such"),
        (tmp_path, "a folder"),
        (pipe, "not a regular file"),
    ):
        with pytest.raises(ConfigError, match=says):
            load_config([path], model=Experiment)


def test_empty_path_is_refused():
    with pytest.raises(ConfigError, match="an empty path"):
        load_config([""], model=Experiment)
