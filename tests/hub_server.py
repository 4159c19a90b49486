"""A Hub for reading, on this machine: serves folders as model repositories over HTTP, in the way the Hub does."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    repositories: dict[str, Path]

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/").split("/")
        if path[:2] == ["api", "models"] and "/".join(path[2:4]) in self.repositories:
            self._answer_api("/".join(path[2:4]), path[4:5])
        elif len(path) > 4 and path[2] == "resolve" and "/".join(path[:2]) in self.repositories:
            self._answer_file(self.repositories["/".join(path[:2])] / "/".join(path[4:]))
        else:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def _answer_api(self, repository: str, kind: list[str]) -> None:
        files = [path for path in sorted(self.repositories[repository].rglob("*")) if path.is_file()]
        names = {path.relative_to(self.repositories[repository]).as_posix(): path for path in files}
        if kind == ["tree"]:
            answer = [{"type": "file", "path": n, "size": p.stat().st_size, "oid": _etag(p)} for n, p in names.items()]
        else:
            answer = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _answer_file(self, path: Path) -> None:
        if path.is_file():
            self._send(200, path.read_bytes(), {"ETag": f'"{_etag(path)}"', "X-Repo-Commit": COMMIT})
        else:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Stays quiet: requests are no news in a test."""


def _etag(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def serve(repositories: dict[str, Path]) -> Iterator[str]:
    """Serves folders under names such as `"org/model"`.

    Yields:
        The address, for `HF_ENDPOINT`.
    """
    handler = type("Handler", (_Handler,), {"repositories": repositories})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
