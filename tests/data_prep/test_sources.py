"""Sources: which files are read, in which order, and what each way of being wrong says."""

from __future__ import annotations

import errno
import glob
import gzip
import json
import os
from pathlib import Path

import pytest

from data_prep.sources.document import Document
from data_prep.sources.files import find_files
from data_prep.sources.jsonl import JsonlFiles
from data_prep.sources.python_docs import PythonDocs
from data_prep.sources.text import TextFiles
from ledger.errors import (
    ConfigError,
    EvidenceMissingError,
    InvalidDocumentError,
    LedgerError,
    StorageError,
    VerificationError,
)
from ledger.storage.filesystem import FileSystem
from tests.data_prep.corpus import write_jsonl
from tests.support.faults import diverted


def texts(source) -> list[str]:
    return [document.text for document in source.documents()]


def test_lines_are_documents_exactly_as_they_stand(tmp_path):
    (tmp_path / "a.txt").write_bytes(b" one \n\ntwo\r\n\xef\xbb\xbfthree\x0b\xe2\x80\xa8four")
    source = TextFiles([str(tmp_path / "a.txt")], unit="line")
    assert texts(source) == [" one ", "", "two\r", "\ufeffthree\x0b\u2028four"]


def test_a_whole_file_is_a_document(tmp_path):
    (tmp_path / "a.md").write_bytes(b"one\n\ntwo\n")
    assert texts(TextFiles([str(tmp_path / "a.md")], unit="file")) == ["one\n\ntwo\n"]


def test_compressed_files_read_as_plain_ones(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text":"a"}\n{"text":"b"}\n'))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"c\nd"))
    assert texts(JsonlFiles([str(tmp_path / "a.jsonl.gz")], column="text")) == ["a", "b"]
    assert texts(TextFiles([str(tmp_path / "b.txt.gz")], unit="line")) == ["c", "d"]


def test_a_folder_is_read_in_the_order_of_paths_and_a_glob_likewise(tmp_path):
    for name in ("b.txt", "a/z.txt", "a/b.md", ".hidden.txt", ".git/x.txt", "skip.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert texts(TextFiles([str(tmp_path)], unit="file")) == ["a/b.md", "a/z.txt", "b.txt"]
    assert texts(TextFiles([str(tmp_path / "**" / "*.txt")], unit="file")) == ["a/z.txt", "b.txt"]


def test_entries_keep_their_order(tmp_path):
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text(name)
    assert texts(TextFiles([str(tmp_path / "b.txt"), str(tmp_path / "a.txt")], unit="file")) == [
        "b.txt",
        "a.txt",
    ]


def test_names_do_not_depend_on_where_the_files_lie(tmp_path):
    identities = []
    for folder in ("here", "there"):
        (tmp_path / folder / "sub").mkdir(parents=True)
        (tmp_path / folder / "sub" / "a.txt").write_text("same")
        identities.append(TextFiles([str(tmp_path / folder)], unit="file").identify())
    assert identities[0] == identities[1]
    assert identities[0].files[0].name == "sub/a.txt"


def test_identity_is_content_not_time(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one")
    source = TextFiles([str(path)], unit="file")
    before = source.identify()
    path.write_text("one")
    assert source.identify() == before
    path.write_text("two")
    assert source.identify() != before


def test_nothing_found_is_an_error_that_says_where(tmp_path):
    for entry in ("absent.txt", "*.txt", "."):
        with pytest.raises(EvidenceMissingError) as caught:
            TextFiles([str(tmp_path / entry)], unit="file")
        assert str(tmp_path) in str(caught.value)


def test_an_empty_path_is_refused_and_never_taken_for_this_folder():
    with pytest.raises(ConfigError, match=r"source\.files: an empty path"):
        JsonlFiles([""], column="text")


def test_a_file_of_another_kind_is_recognised(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(gzip.compress(b"{}"))
    with pytest.raises(InvalidDocumentError, match="looks like a gzip file"):
        next(JsonlFiles([str(tmp_path / "a.jsonl")], column="text").documents())
    (tmp_path / "b.jsonl").write_text("<html>\n")
    with pytest.raises(InvalidDocumentError, match="looks like HTML"):
        next(JsonlFiles([str(tmp_path / "b.jsonl")], column="text").documents())


def test_a_file_named_twice_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ConfigError, match="named twice"):
        TextFiles([str(tmp_path / "a.txt"), str(tmp_path / "*.txt")], unit="file")


LINES = {
    "not JSON": (b"{'text': 'a'}", "not JSON"),
    "empty": (b"", "empty"),
    "a list": (b'["a"]', "no object"),
    "no such key": (b'{"content":"a"}', "'content'"),
    "a number": (b'{"text":5}', "expected a text"),
    "null": (b'{"text":null}', "expected a text"),
    "a lone surrogate": (b'{"text":"a\\ud800b"}', "lone surrogate, U+D800, at character 1"),
    "not UTF-8": (b'{"text":"\xff"}', "byte 9 (0xFF) is not UTF-8"),
    "an encoded surrogate": (b'{"text":"\xed\xa0\x80"}', "not UTF-8"),
    "a key twice": (b'{"text":"a","text":"b"}', "twice"),
    "deep": (b'{"text":' + b"[" * 100_000, "not JSON"),
}


@pytest.mark.parametrize("name", LINES)
def test_a_bad_line_is_refused_with_its_place(name, tmp_path):
    line, message = LINES[name]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text":"fine"}\n' + line + b"\n")
    with pytest.raises(InvalidDocumentError) as caught:
        texts(JsonlFiles([str(path)], column="text"))
    assert f"{path}: line 2" in str(caught.value)
    assert message in str(caught.value)


GARBAGE = gzip.compress(b"x\n") + b"garbage"
CUT = gzip.compress(b"x\n") + gzip.compress(b"y" * 5_000)[:-9]


@pytest.mark.parametrize(
    "data",
    [gzip.compress(b"x" * 5_000)[:-20], b"not gzip at all\n", gzip.compress(b"x")[:5], b"", GARBAGE, CUT],
    ids=["no end", "no gzip", "half a head", "nothing", "garbage behind it", "a second member cut"],
)
def test_damaged_gzip_is_found(data, tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(data)
    with pytest.raises(VerificationError, match=r"a\.txt\.gz.*gzip data is damaged"):
        texts(TextFiles([str(tmp_path / "a.txt.gz")], unit="line"))


@pytest.fixture
def library(tmp_path):
    files: dict[str, str | bytes] = {
        "pydoc_data/topics.py": "topics = {'b': 'second', 'a': 'first'}",
        "mod.py": '"""Module."""\nclass A:\n    """Class\n       text."""\n    def f(self):\n        "Method."\n'
        "try:\n    def g():\n        '''Inner.'''\nexcept E:\n    async def h():\n        '''Handler.'''\n"
        "def none():\n    return 1\ndef empty():\n    ''\n",
        "a/sub.py": '"""Sub."""',
        "site-packages/x.py": '"""Left out."""',
        "a/tests/t.py": '"""Left out."""',
        "_sysconfigdata_x.py": '"""Left out."""',
        "broken.py": "def (",
        "old.py": b"# coding: latin-1\n'''\xe9t\xe9'''",
        "data.txt": "'''no'''",
    }
    for name, content in files.items():
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path / "lib"


def test_python_docs_are_topics_then_docstrings_in_order(library):
    found = [(document.path, document.text) for document in PythonDocs(library=library).documents()]
    assert found == [
        ("pydoc_data/topics.py", "first"),
        ("pydoc_data/topics.py", "second"),
        ("a/sub.py", "Sub."),
        ("mod.py", "Module."),
        ("mod.py", "Class\ntext."),
        ("mod.py", "Method."),
        ("mod.py", "Inner."),
        ("mod.py", "Handler."),
        ("old.py", "été"),
    ]


def test_python_docs_are_identified_by_what_they_say(library):
    before = PythonDocs(library=library).identify()
    assert before.resolved_revision is not None
    (library / "mod.py").write_text('"""Other."""')
    after = PythonDocs(library=library).identify()
    assert [file.name for file in before.files] == ["topics", "docstrings"]
    assert before.files[0] == after.files[0]
    assert before.files[1] != after.files[1]


def test_python_without_topics_says_so(tmp_path):
    with pytest.raises(EvidenceMissingError, match="topics"):
        PythonDocs(library=tmp_path).identify()


def test_documents_know_their_size_and_place(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "é"}))
    (document,) = JsonlFiles([str(tmp_path / "a.jsonl")], column="text").documents()
    assert document == Document("é".encode(), str(tmp_path / "a.jsonl"), "line 1")


class Unlistable(FileSystem):
    """Cannot list one folder."""

    def perform(self, operation, path, function, *arguments, **options):
        if operation == "list" and Path(path).name == "b":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().perform(operation, path, function, *arguments, **options)


@pytest.mark.parametrize("entry", ["", "*/*.jsonl", "**/*.jsonl"])
def test_a_folder_that_cannot_be_listed_is_an_error_and_never_left_out(entry: str, tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_jsonl(tmp_path / name / "text.jsonl", ["text"])
    named = [str(tmp_path / entry)]
    assert len(find_files(named, suffixes=[".jsonl"])) == 2
    with diverted(Unlistable()), pytest.raises(StorageError, match="EIO"):
        find_files(named, suffixes=[".jsonl"])


PATTERNS = [
    "*.jsonl",
    "*/*.jsonl",
    "**/*.jsonl",
    "**",
    "a/**",
    "a/**/deep/*",
    "[ab]/?.jsonl",
    ".*/*",
    "a*/../b/*",
    "none/*",
]


def test_a_gzip_file_of_several_members_is_read_to_its_end(tmp_path):
    members = [gzip.compress(f"{number}\n".encode() * 2_000) for number in range(3)]
    (tmp_path / "a.txt.gz").write_bytes(b"".join(members) + bytes(512))
    source = TextFiles([str(tmp_path / "a.txt.gz")], unit="line")
    assert texts(source) == [str(number) for number in range(3) for _ in range(2_000)]


@pytest.mark.parametrize("entry", ["", "**/*.jsonl", "**/x/*.jsonl", "**/**/*.jsonl"])
def test_links_that_lead_round_in_circles_are_gone_round_once(entry: str, tmp_path: Path):
    for name in ("a", "b/x"):
        (tmp_path / name).mkdir(parents=True)
        write_jsonl(tmp_path / name / "t.jsonl", [name])
        for number in range(3):  # 40 levels of three links each would never end
            (tmp_path / name / f"up{number}").symlink_to(tmp_path)
    found = [file.name for file in find_files([str(tmp_path / entry)], suffixes=[".jsonl"])]
    assert found == (["b/x/t.jsonl"] if "x" in entry else ["a/t.jsonl", "b/x/t.jsonl"])


def test_a_link_to_itself_is_refused(tmp_path: Path):
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "a.jsonl")
    with pytest.raises(LedgerError, match=r"a\.jsonl"):
        JsonlFiles([str(tmp_path / "a.jsonl")], column="text").identify()


@pytest.mark.parametrize("name", [b"a\nb.jsonl", b"a\xffb.jsonl", b"a\x1b[31m.jsonl", b" a [1]*.jsonl"])
def test_a_file_of_any_name_can_be_read_and_recorded(name: bytes, tmp_path: Path):
    write_jsonl(tmp_path / os.fsdecode(name), ["text"])
    source = JsonlFiles([str(tmp_path)], column="text")
    (file,) = source.identify().files
    assert file.name == name.decode("utf-8", "backslashreplace")
    assert texts(source) == ["text"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_what_it_means_to_python(pattern: str, tmp_path: Path):
    for name in (
        "t.jsonl",
        "a/x.jsonl",
        "a/deep/y.jsonl",
        "a/deep/er/deep/z",
        "b/x.jsonl",
        ".h/x.jsonl",
        "b/.h",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    expected = {
        path
        for found in glob.glob(f"{tmp_path}/{pattern}", recursive=True)  # noqa: PTH207 - what is compared with
        if (path := Path(found)).is_file()
    }
    if not expected:
        with pytest.raises(EvidenceMissingError):
            find_files([f"{tmp_path}/{pattern}"], suffixes=[".jsonl"])
        return
    found = find_files([f"{tmp_path}/{pattern}"], suffixes=[".jsonl"])
    assert {file.path for file in found} == expected
