"""A hub on the loopback interface: one commit of one repository, and a note of what was asked for."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

__all__ = ["COMMIT", "LATER", "LoopbackHub", "serve"]

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LATER = "89abcdef0123456789abcdef0123456789abcdef"


class LoopbackHub(ThreadingHTTPServer):
    """Serves files of `datasets/me/texts` and `me/words`; `main` is one of two commits.

    Files below `large/` are listed with their SHA-256, as the hub does for those that git does not hold itself.
    """

    daemon_threads = True

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.main = COMMIT
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: LoopbackHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(f"{self.command} {path}")
        parts = path.removeprefix("/api").strip("/").split("/")
        if parts[0] in {"datasets", "models"}:
            parts = parts[1:]
        name, rest = "/".join(parts[:2]), parts[2:]
        if name not in {"me/texts", "me/words"}:
            self._refuse("RepoNotFound")
        elif len(rest) > 1 and rest[1] not in {"main", COMMIT, LATER}:
            self._refuse("RevisionNotFound")
        elif rest[:1] == ["revision"]:
            siblings = [{"rfilename": file} for file in self.server.files]
            sha = self.server.main if rest[1:] == ["main"] else rest[1]
            self._answer_json({"id": name, "sha": sha, "siblings": siblings})
        elif rest[:1] == ["tree"]:
            files = self.server.files
            self._answer_json([_entry(file, files[file], is_large=self._is_large(file)) for file in files])
        elif rest[:1] == ["resolve"] and "/".join(rest[2:]) in self.server.files:
            self._answer_file("/".join(rest[2:]), commit=rest[1])
        else:
            self._refuse("EntryNotFound")

    do_HEAD = do_GET  # noqa: N815 - the name that the base class calls

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer_json(self, value: object) -> None:
        self._answer(json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _is_large(self, file: str) -> bool:
        return file.startswith("large/")

    def _answer_file(self, file: str, *, commit: str) -> None:
        data = self.server.files[file]
        sha = hashlib.sha1(data).hexdigest()  # noqa: S324 - the name that git would give it
        if self._is_large(file):
            sha = hashlib.sha256(data).hexdigest()
        self._answer(data, {"ETag": f'"{sha}"', "X-Repo-Commit": commit})

    def _answer(self, data: bytes, headers: Mapping[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def _refuse(self, code: str) -> None:
        self._answer(b"{}", {"X-Error-Code": code, "X-Error-Message": code}, status=404)


def _entry(file: str, data: bytes, *, is_large: bool) -> dict[str, object]:
    oid = hashlib.sha1(data).hexdigest()  # noqa: S324 - the name that git would give it
    entry = {"type": "file", "path": file, "size": len(data), "oid": oid}
    if not is_large:
        return entry
    return entry | {"lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}}


@contextmanager
def serve(files: Mapping[str, bytes]) -> Iterator[LoopbackHub]:
    """Serve files until the block ends."""
    hub = LoopbackHub(files)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
