"""One repository through huggingface_hub: small files into the client's cache, headers by range, no more.

Every answer is bounded in size and time, also of a server which ignores ranges, lies about sizes or stalls.
"""

import errno
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

from gpuplan.errors import ModelError
from gpuplan.sources.config_json import MAX_BYTES, read_bounded, too_large
from gpuplan.sources.deadline import Deadline
from gpuplan.sources.hub_errors import is_passing, status_of
from gpuplan.sources.safetensors import LENGTH_BYTES, Header, header_length, parse_header, read_header

T = TypeVar("T")

_MAX_HEADERS_BYTES = 512 * 1024**2
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """What a HEAD request says of a file."""

    commit: str
    size: int | None


class HubClient:
    """Reads one repository at one revision before one deadline."""

    def __init__(
        self,
        repository: str,
        *,
        revision: str,
        endpoint: str,
        cache_dir: Path | None,
        token: str | None,
        request_seconds: float | None,
        deadline: Deadline,
    ) -> None:
        self.repository = repository
        self.revision = revision
        self.endpoint = endpoint
        self.deadline = deadline
        self._cache_dir = cache_dir
        self._token = token
        self._request_seconds = request_seconds
        self._headers_bytes = 0
        self._lock = threading.Lock()

    def head(self, file: str) -> FileState:
        """Commit and size of a file. Raises the client's errors, and ModelError when no hub answers."""
        from huggingface_hub import constants, get_hf_file_metadata

        found = self._retried(
            lambda: get_hf_file_metadata(
                self._url(file, self.revision),
                token=self._token,
                timeout=self._seconds(constants.HF_HUB_ETAG_TIMEOUT),
                endpoint=self.endpoint,
            )
        )
        commit, etag = found.commit_hash or "", found.etag or ""
        if not commit.isalnum() or len(commit) > 64 or not etag or any(sign in etag for sign in "/\\\0"):
            raise ModelError(
                f"{self.repository}: {self.endpoint} does not answer like a Hugging Face hub",
                hint="check HF_ENDPOINT, and whether a proxy or a login page answers in the hub's place",
            )
        return FileState(commit=commit, size=found.size)

    def small_file(self, file: str, *, limit: int = MAX_BYTES) -> bytes:
        """The content of a file of at most `limit` bytes, through the client's cache."""
        from huggingface_hub import constants, hf_hub_download

        where = f"{self.repository}/{file}"
        size = self.head(file).size
        if size is not None and size > limit:
            raise too_large(where, size, limit)
        try:
            path = hf_hub_download(
                self.repository,
                file,
                revision=self.revision,
                cache_dir=self._cache_dir,
                endpoint=self.endpoint,
                token=self._token,
                etag_timeout=self._seconds(constants.HF_HUB_ETAG_TIMEOUT),
                tqdm_class=_limit_on(where, limit),
            )
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
                raise
            return self.get(self._url(file, self.revision), where, limit=limit)
        return read_bounded(Path(path), limit=limit)

    def file_names(self, commit: str) -> tuple[str, ...] | None:
        """Every file of the repository; None when the server does not tell."""
        url = f"{self.endpoint}/api/models/{self.repository}/revision/{quote(commit, safe='')}"
        try:
            document = json.loads(self.get(url, url, limit=MAX_BYTES))
        except (OSError, ValueError, RecursionError, ModelError):
            return None
        siblings = document.get("siblings") if isinstance(document, dict) else None
        if not isinstance(siblings, list):
            return None
        names = (sibling.get("rfilename") for sibling in siblings if isinstance(sibling, dict))
        return tuple(name for name in names if isinstance(name, str))

    def header(self, file: str, commit: str) -> Header | None:
        """A safetensors header, from the client's cache or by two range requests; None for a missing file."""
        from huggingface_hub import try_to_load_from_cache

        where = f"{self.repository}/{file}"
        cached = try_to_load_from_cache(self.repository, file, cache_dir=self._cache_dir, revision=commit)
        if isinstance(cached, str):
            return read_header(Path(cached))
        try:
            prefix, size, final = self._range(self._url(file, commit), 0, LENGTH_BYTES)
        except OSError as error:
            if status_of(error) == 404:
                return None
            if status_of(error) != 416:
                raise
            prefix, size, final = b"", 0, ""
        length = header_length(prefix, file=where, file_bytes=size)
        with self._lock:
            self._headers_bytes += length
            if self._headers_bytes > _MAX_HEADERS_BYTES:
                raise ModelError(
                    f"{self.repository}: its safetensors headers exceed {_MAX_HEADERS_BYTES} bytes"
                )
        text, _, _ = self._range(final, LENGTH_BYTES, length) if length else (b"", None, "")
        if len(text) < length:
            raise ModelError(f"{where}: its header has {length} bytes, but only {len(text)} were served")
        return parse_header(text, file=where, file_bytes=size)

    def get(self, url: str, where: str, *, limit: int) -> bytes:
        """The body of a GET of at most `limit` bytes."""
        body, _, _ = self._retried(lambda: self._read(url, None, 0, limit + 1))
        if len(body) > limit:
            raise too_large(where, len(body), limit)
        return body

    def _range(self, url: str, first: int, count: int) -> tuple[bytes, int | None, str]:
        """`count` bytes from `first` on, the size of the whole file, and the address that served them."""
        wanted = f"bytes={first}-{first + count - 1}"
        return self._retried(lambda: self._read(url, wanted, first, count))

    def _read(self, url: str, wanted: str | None, first: int, count: int) -> tuple[bytes, int | None, str]:
        from huggingface_hub import constants, get_session, hf_raise_for_status
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined] # public, but not in `__all__`

        same_server = urlsplit(url).netloc == urlsplit(self.endpoint).netloc
        headers = build_hf_headers(token=self._token if same_server else False)
        headers["Accept-Encoding"] = "identity"
        if wanted is not None:
            headers["Range"] = wanted
        seconds = self._seconds(constants.HF_HUB_DOWNLOAD_TIMEOUT)
        with get_session().stream("GET", url, headers=headers, timeout=seconds) as response:
            hf_raise_for_status(response)
            # A server that ignores ranges sends the file from its start: what precedes `first` is skipped.
            skip = first if response.status_code == 200 else 0
            body = bytearray()
            for chunk in response.iter_bytes(chunk_size=None):
                body += chunk
                self.deadline.remaining()
                if len(body) >= skip + count:
                    break
            return bytes(body[skip : skip + count]), _whole_size(response), str(response.url)

    def _url(self, file: str, revision: str) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(self.repository, file, revision=revision, endpoint=self.endpoint)

    def _seconds(self, default: float) -> float:
        return min(self._request_seconds or default, self.deadline.remaining())

    def _retried(self, call: Callable[[], T]) -> T:
        """Try again after an overloaded server or a broken connection, not after a timeout."""
        for attempt in range(_ATTEMPTS):
            try:
                return call()
            except client_errors() as error:
                slow = any(kind.__name__ == "TimeoutException" for kind in type(error).__mro__)
                refused = any(kind.__name__ == "ConnectError" for kind in type(error).__mro__)
                if slow or refused or not is_passing(error) or attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(min(0.5 * 2**attempt, self.deadline.remaining()))
        raise AssertionError("unreachable")


def client_errors() -> tuple[type[Exception], ...]:
    """What the client raises for a request: its own errors and those of the HTTP library it is built on."""
    from huggingface_hub.errors import HfHubHTTPError

    transport = next(
        kind for kind in HfHubHTTPError.__mro__ if kind.__name__ in ("HTTPError", "RequestException")
    )
    return (OSError, transport)


def _whole_size(response: Any) -> int | None:
    total = response.headers.get("Content-Range", "").rpartition("/")[2]
    if not total and response.status_code == 200:
        total = response.headers.get("Content-Length", "")
    return int(total) if total.isdecimal() and len(total) < 20 else None


def _limit_on(where: str, limit: int) -> type:
    """A progress bar that shows nothing and ends a download that grows beyond `limit`."""

    class Limit:
        def __init__(self, *_: Any, **__: Any) -> None:
            self._bytes = 0

        def update(self, count: float | None = 1) -> None:
            self._bytes += int(count or 0)
            if self._bytes > limit:
                raise too_large(where, self._bytes, limit)

        def close(self) -> None:
            pass

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    return Limit
