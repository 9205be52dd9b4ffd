"""A container engine's API on a Unix socket, in this process: documents by path, and every way to misbehave."""

import json
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

VERSION = {"Version": "28.3.2", "ApiVersion": "1.51", "MinAPIVersion": "1.24", "Arch": "amd64", "Os": "linux"}

Answer = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One connection of a client; an `Answer` writes what it likes on it."""

    protocol_version = "HTTP/1.1"
    server: "EngineServer"

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def address_string(self) -> str:
        return "socket"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name the library calls it by
        pass

    def document(self, document: Any, status: int = 200) -> None:
        """Answer with JSON and keep the connection."""
        self.whole(json.dumps(document).encode(), status)

    def whole(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def start_chunks(self, kind: str = "application/vnd.docker.multiplexed-stream") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        """An empty one ends the answer."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def cut(self) -> None:
        """End the connection in the middle of an answer."""
        self.close_connection = True

    def body(self) -> bytes:
        """Of the request, whole or in chunks."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            return b"".join(self.chunks())
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def chunks(self) -> Iterator[bytes]:
        """Of the request, as they come."""
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _any(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(f"{self.command} {self.path}")
        answer = self.server.answers.get(f"{self.command} {_unversioned(path)}")
        if answer is None:
            self.document({"message": f"page not found: {path}"}, 404)
        elif callable(answer):
            with suppress(BrokenPipeError, ConnectionResetError):
                answer(self)
        else:
            self.body()
            self.document(answer)

    do_GET = do_POST = do_DELETE = do_PUT = do_HEAD = _any  # noqa: N815 - the names the library looks for


class EngineServer(ThreadingMixIn, UnixStreamServer):
    """`answers`: by method and path without version (`GET /info`) a document or an Answer."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, path: Path, answers: Mapping[str, Any | Answer]) -> None:
        self.answers: dict[str, Any | Answer] = {"GET /version": VERSION, **answers}
        self.asked: list[str] = []
        self.connections = 0
        self.released = threading.Event()
        """Set at the end: answers that hang wait for it."""
        super().__init__(str(path), Request)


@contextmanager
def serving(path: Path, answers: Mapping[str, Any | Answer] | None = None) -> Iterator[EngineServer]:
    """The server on a socket at `path`."""
    with EngineServer(path, answers or {}) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


def frame(data: bytes, stream: int = 1) -> bytes:
    """Output of a container as the engine multiplexes it."""
    return struct.pack(">BxxxL", stream, len(data)) + data


def hang(request: Request) -> None:
    """Take the request and never answer."""
    request.server.released.wait()
    request.close_connection = True


def _unversioned(path: str) -> str:
    parts = path.split("/", 2)
    return f"/{parts[2]}" if len(parts) == 3 and parts[1][:1] == "v" and parts[1][1:2].isdigit() else path
