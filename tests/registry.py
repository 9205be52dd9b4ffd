"""A registry to pull from (distribution API v2, read only), in this process: images made here, and every way to fail."""

import base64
import gzip
import hashlib
import io
import json
import random
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_PIECE = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """An image the registry has."""

    reference: str
    """`198.18.1.254:5000/name:tag`."""
    by_digest: str
    id: str
    packed_bytes: int
    """Of all layers."""


@dataclass(slots=True, kw_only=True)
class Faults:
    """What is wrong with the registry now."""

    status: int | None = None
    """Every manifest and blob is answered so: 403, 429, 500."""
    login: tuple[str, str] | None = None
    """Who may pull; others get 401."""
    stall_after: int | None = None
    """Bytes of a blob, after which nothing more comes."""
    cut_after: int | None = None
    """Bytes of a blob, after which the connection ends."""


class Registry:
    """Serves what was pushed, at an address of this machine."""

    def __init__(self, address: str, port: int = 0) -> None:
        self.faults = Faults()
        self.asked: list[str] = []
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        """Type and bytes by repository and tag or digest."""
        self.ended = threading.Event()
        self._server = _Server((address, port), self)
        self.place = f"{address}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def push(
        self, repository: str, tag: str, archive: bytes, *, padding: int = 0, only_for: str | None = None
    ) -> Pushed:
        """Take an image as `docker load` would. `padding`: bytes of one more layer, which do not pack.

        `only_for`: an architecture; the tag is then a list with an image for this one alone.
        """
        config, layers = _unpacked(archive)
        if padding:
            layer = _padding(padding)
            layers.append(layer)
            config["rootfs"]["diff_ids"].append(_digest(layer))
            config["history"].append({"created_by": "padding"})
        text = json.dumps(config).encode()
        packed = [gzip.compress(layer, 1, mtime=0) for layer in layers]
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": self._described(_CONFIG, text),
                "layers": [self._described(_LAYER, each) for each in packed],
            }
        ).encode()
        kind, top = _MANIFEST, manifest
        self.manifests[repository, _digest(manifest)] = (_MANIFEST, manifest)
        if only_for is not None:
            platform = {"architecture": only_for, "os": "linux"}
            entry = {**self._described(_MANIFEST, manifest), "platform": platform}
            kind, top = (
                _LIST,
                json.dumps({"schemaVersion": 2, "mediaType": _LIST, "manifests": [entry]}).encode(),
            )
        for name in (tag, _digest(top)):
            self.manifests[repository, name] = (kind, top)
        return Pushed(
            reference=f"{self.place}/{repository}:{tag}",
            by_digest=f"{self.place}/{repository}@{_digest(top)}",
            id=_digest(text),
            packed_bytes=sum(map(len, packed)),
        )

    def _described(self, kind: str, content: bytes) -> dict[str, Any]:
        self.blobs[_digest(content)] = content
        return {"mediaType": kind, "size": len(content), "digest": _digest(content)}

    def end(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def registry_at(address: str) -> Iterator[Registry]:
    running = Registry(address)
    try:
        yield running
    finally:
        running.end()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, place: tuple[str, int], registry: Registry) -> None:
        self.registry = registry
        super().__init__(place, _Request)


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name the library calls it by
        pass

    def _any(self) -> None:
        registry = self.server.registry
        registry.asked.append(f"{self.command} {self.path}")
        if not self._welcome(registry.faults.login):
            self._refuse(401, "UNAUTHORIZED", "authentication required")
            return
        parts = self.path.removeprefix("/v2/").rsplit("/", 2)
        if self.path == "/v2/":
            self._whole("application/json", b"{}")
        elif registry.faults.status is not None:
            code = {403: "DENIED", 429: "TOOMANYREQUESTS"}.get(registry.faults.status, "UNKNOWN")
            self._refuse(registry.faults.status, code, "no more today")
        elif len(parts) == 3 and parts[1] == "manifests":
            self._manifest(parts[0], parts[2])
        elif len(parts) == 3 and parts[1] == "blobs" and parts[2] in registry.blobs:
            self._blob(registry.blobs[parts[2]])
        else:
            self._refuse(404, "BLOB_UNKNOWN", "blob unknown to registry")

    do_GET = do_HEAD = _any  # noqa: N815 - the names the library looks for

    def _welcome(self, login: tuple[str, str] | None) -> bool:
        known = base64.b64encode(":".join(login or ()).encode()).decode()
        return login is None or self.headers.get("Authorization") == f"Basic {known}"

    def _manifest(self, repository: str, name: str) -> None:
        found = self.server.registry.manifests.get((repository, name))
        if found is None:
            self._refuse(404, "MANIFEST_UNKNOWN", "manifest unknown")
        else:
            self._whole(*found)

    def _blob(self, content: bytes) -> None:
        registry, faults = self.server.registry, self.server.registry.faults
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            for at in range(0, len(content), _PIECE):
                if faults.cut_after is not None and at >= faults.cut_after:
                    self.close_connection = True
                    return
                if faults.stall_after is not None and at >= faults.stall_after:
                    registry.ended.wait()
                    self.close_connection = True
                    return
                self.wfile.write(content[at : at + _PIECE])

    def _refuse(self, status: int, code: str, words: str) -> None:
        body = json.dumps({"errors": [{"code": code, "message": words}]}).encode()
        more = {"WWW-Authenticate": 'Basic realm="tests"'} if status == 401 else {}
        self._whole("application/json", body, status, **more)

    def _whole(self, kind: str, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name, value)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Docker-Content-Digest", _digest(body))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _unpacked(archive: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Configuration and layers of what `docker load` takes."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:

        def read(name: str) -> bytes:
            member = tar.extractfile(name)
            assert member is not None
            return member.read()

        (manifest,) = json.loads(read("manifest.json"))
        return json.loads(read(manifest["Config"])), [read(name) for name in manifest["Layers"]]


def _padding(size: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("padding")
        entry.size = size
        tar.addfile(entry, io.BytesIO(random.Random(size).randbytes(size)))
    return buffer.getvalue()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
