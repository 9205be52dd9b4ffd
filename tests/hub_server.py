"""A Hugging Face hub on this machine: layout, headers and faults of the real one; it counts what it sent."""

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "5f0b02c75b57c5855da9ae460ce51323ea669d8a"


@dataclass
class HostedRepository:
    files: dict[str, bytes]
    commit: str = COMMIT
    token: str | None = None
    """Needed to read; without it the repository is gated."""
    hidden: bool = False
    """Without the token the repository does not exist."""
    status: int | None = None
    """Every request is answered with this status."""
    delay: float = 0.0
    """Seconds before any answer."""
    trickle: float = 0.0
    """Seconds between single bytes of a body."""
    ranges: bool = True
    listing: bool = True
    truncate: Mapping[str, int] = field(default_factory=dict)
    """Files of which only so many bytes are there, whatever their size is said to be."""
    claimed_size: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    range: str | None
    authorization: str | None
    status: int
    sent: int


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class Hub:
    """Repositories by name; weights come from a second host name, as the real hub redirects to its CDN."""

    def __init__(self) -> None:
        self.repositories: dict[str, HostedRepository] = {}
        self.requests: list[Request] = []
        self.html: bytes | None = None
        """Answer everything with this page, as a captive portal does."""
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.cdn = f"http://localhost:{self.port}/cdn"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def add(self, name: str, files: Mapping[str, bytes], **settings: Any) -> HostedRepository:
        self.repositories[name] = HostedRepository(files=dict(files), **settings)
        return self.repositories[name]

    def sent_of(self, suffix: str) -> int:
        """Body bytes sent of files whose name ends so."""
        return sum(request.sent for request in self.requests if request.path.endswith(suffix))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    try:
        yield hub
    finally:
        hub.close()


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            self.close_connection = True
            path = unquote(urlsplit(self.path).path)
            if hub.html is not None:
                self._send(200, {"Content-Type": "text/html"}, hub.html, path)
            elif match := re.fullmatch(r"/(cdn/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self._resolve(bool(match[1]), match[2], match[3], match[4], path)
            elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
                self._describe(match[1], match[2] or "main", path)
            elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path):
                self._list(match[1], match[2], path)
            else:
                self._fail(404, "RepoNotFound", path)

        def _repository(self, name: str, revision: str, path: str) -> HostedRepository | None:
            repository = hub.repositories.get(name)
            if repository is None:
                self._fail(401 if "authorization" not in self.headers else 404, "RepoNotFound", path)
                return None
            time.sleep(repository.delay)
            authorized = self.headers.get("authorization") == f"Bearer {repository.token}"
            if repository.status is not None:
                self._fail(repository.status, None, path)
            elif repository.token is not None and not authorized:
                error = "RepoNotFound" if repository.hidden else "GatedRepo"
                self._fail(403 if "authorization" in self.headers else 401, error, path)
            elif revision not in ("main", repository.commit):
                self._fail(404, "RevisionNotFound", path)
            else:
                return repository
            return None

        def _resolve(self, from_cdn: bool, name: str, revision: str, file: str, path: str) -> None:
            if from_cdn:
                # The CDN never sees a token: the address itself is the permission.
                repository: HostedRepository | None = hub.repositories[name]
                if "authorization" in self.headers:
                    self._fail(400, None, path)
                    return
            else:
                repository = self._repository(name, revision, path)
            if repository is None:
                return
            if file not in repository.files:
                self._fail(404, "EntryNotFound", path, {"X-Repo-Commit": repository.commit})
                return
            content = repository.files[file]
            size = repository.claimed_size.get(file, len(content))
            tag = hashlib.sha256(content).hexdigest()
            headers = {"X-Repo-Commit": repository.commit, "ETag": f'"{tag}"', "Accept-Ranges": "bytes"}
            if file.endswith(".safetensors") and not from_cdn:
                headers |= {"X-Linked-Size": str(size), "X-Linked-ETag": f'"{tag}"'}
                self._send(302, headers | {"Location": f"{hub.cdn}{self.path}"}, b"", path)
                return
            self._content(repository, file, content, size, headers=headers, path=path)

        def _content(
            self,
            repository: HostedRepository,
            file: str,
            content: bytes,
            size: int,
            *,
            headers: dict[str, str],
            path: str,
        ) -> None:
            served = content[: repository.truncate.get(file, len(content))]
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range") or "")
            if wanted is None or not repository.ranges:
                self._send(200, headers, served, path, trickle=repository.trickle, length=size)
                return
            first, last = int(wanted[1]), min(int(wanted[2]), size - 1)
            if first >= size:
                self._send(416, headers | {"Content-Range": f"bytes */{size}"}, b"", path)
                return
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
            self._send(
                206,
                headers,
                served[first : last + 1],
                path,
                trickle=repository.trickle,
                length=last - first + 1,
            )

        def _describe(self, name: str, revision: str, path: str) -> None:
            repository = self._repository(name, revision, path)
            if repository is None:
                return
            if not repository.listing:
                self._fail(404, None, path)
                return
            siblings: list[dict[str, object]] = [{"rfilename": file} for file in sorted(repository.files)]
            if "blobs=" in urlsplit(self.path).query:
                siblings = [
                    {**each, "size": len(repository.files[str(each["rfilename"])])} for each in siblings
                ]
            body = json.dumps({"id": name, "sha": repository.commit, "siblings": siblings}).encode()
            self._send(200, {"Content-Type": "application/json"}, body, path)

        def _list(self, name: str, revision: str, path: str) -> None:
            repository = self._repository(name, revision, path)
            if repository is None:
                return
            tree = [
                {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for file, content in sorted(repository.files.items())
            ]
            self._send(200, {"Content-Type": "application/json"}, json.dumps(tree).encode(), path)

        def _fail(
            self, status: int, code: str | None, path: str, headers: Mapping[str, str] | None = None
        ) -> None:
            named = {"X-Error-Code": code} if code else {}
            self._send(status, {**(headers or {}), **named}, b"", path)

        def _send(
            self,
            status: int,
            headers: Mapping[str, str],
            body: bytes,
            path: str,
            *,
            trickle: float = 0.0,
            length: int | None = None,
        ) -> None:
            sent = len(body) if self.command == "GET" else 0
            hub.requests.append(
                Request(
                    self.command,
                    path,
                    self.headers.get("range"),
                    self.headers.get("authorization"),
                    status,
                    sent,
                )
            )
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "GET":
                return
            try:
                if not trickle:
                    self.wfile.write(body)
                for offset in range(len(body) if trickle else 0):
                    self.wfile.write(body[offset : offset + 1])
                    self.wfile.flush()
                    time.sleep(trickle)
            except OSError:
                pass

    return Handler
