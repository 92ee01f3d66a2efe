"""A model hub on this machine: serves one folder as the repository org/tiny, with the hub's own error codes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

NAME = "org/tiny"
COMMIT = "a" * 40


class FakeHub:
    """`requests` are (method, path, authorization) as they came; `refusal` is a (status, error code) for all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[tuple[str, str, str | None]] = []
        self.refusal: tuple[int, str] | None = None
        self.endpoint = ""

    def fetched(self) -> set[str]:
        """The files that were downloaded."""
        start = f"/{NAME}/resolve/{COMMIT}/"
        return {path.removeprefix(start) for verb, path, _ in self.requests if verb == "GET" and path.startswith(start)}


@contextmanager
def serve(folder: Path) -> Iterator[FakeHub]:
    """Run a hub over `folder` while inside."""
    hub = FakeHub(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def log_message(self, *_: object) -> None:
            """Nothing on stderr: the tests look at it."""

        def _answer(self) -> None:
            path = urlsplit(self.path).path
            hub.requests.append((self.command, path, self.headers.get("Authorization")))
            if hub.refusal is not None:
                self._send(hub.refusal[0], b"", {"X-Error-Code": hub.refusal[1]})
            elif path == f"/api/models/{NAME}/revision/main":
                self._json({"id": NAME, "modelId": NAME, "sha": COMMIT, "siblings": []})
            elif path.startswith(f"/api/models/{NAME}/revision/"):
                self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            elif path == f"/api/models/{NAME}/tree/{COMMIT}":
                self._json([_entry(hub.folder, file) for file in sorted(hub.folder.rglob("*")) if file.is_file()])
            elif path.startswith(f"/{NAME}/resolve/{COMMIT}/"):
                data = (hub.folder / path.removeprefix(f"/{NAME}/resolve/{COMMIT}/")).read_bytes()
                self._send(200, data, {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(data).hexdigest()}"'})
            else:
                self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

        def _json(self, value: object) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _entry(folder: Path, file: Path) -> dict[str, object]:
    data = file.read_bytes()
    name = file.relative_to(folder).as_posix()
    return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
