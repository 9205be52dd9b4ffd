"""Images through a server of ours: pulls with every end, and archives carried from one engine to another."""

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuplan.remote import images
from gpuplan.remote.cancellation import Cancellation
from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.docker_engine import Engine, engine
from gpuplan.remote.images import LoadFailed, PullCause, PullFailed, pull_cause
from gpuplan.remote.local import LocalConnection
from gpuplan.remote.registry_login import RegistryLogin
from tests.engine_server import EngineServer, Request, hang, serving

LONG = 60.0
SHORT = 0.3
IMAGE = "vllm/vllm-openai:v0.33.0"
ID = f"sha256:{64 * 'a'}"
FOUND = {
    "Id": ID,
    "RepoTags": [IMAGE],
    "RepoDigests": ["vllm/vllm-openai@sha256:1"],
    "Architecture": "amd64",
    "Size": 20_000,
    "Config": {
        "Env": ["CUDA_VERSION=12.9.1", "A=b=c", "EMPTY"],
        "Labels": {"b": "2", "a": "1"},
        "Entrypoint": ["vllm", "serve"],
        "Cmd": None,
    },
}
Reached = Callable[..., tuple[Engine, EngineServer]]
Told = list[tuple[int, int | None, str]]


@pytest.fixture
def reached(tmp_path: Path) -> Iterator[Reached]:
    """An engine that answers as told, and the server that plays it."""
    ends: list[Any] = []

    def reach(
        answers: Mapping[str, Any], *, connection: LocalConnection | None = None
    ) -> tuple[Engine, EngineServer]:
        path = tmp_path / f"{len(ends)}.sock"
        served = serving(path, answers)
        server = served.__enter__()
        carrier = connection or LocalConnection()
        found = engine(carrier, socket_path=str(path), cli=False, timeout=LONG)
        ends.append((found, carrier, served))
        return found, server

    yield reach
    for found, carrier, served in ends:
        found.close()
        carrier.close()
        served.__exit__(None, None, None)


def events(*documents: Any, cut: bool = False, then: Callable[[Request], None] | None = None) -> Any:
    """An answer of JSON documents, two in a piece and some torn."""
    text = b"".join(json.dumps(document).encode() + b"\r\n" for document in documents)

    def answer(request: Request) -> None:
        request.body()
        request.start_chunks("application/json")
        for at in range(0, len(text), 50):
            request.chunk(text[at : at + 50])
        if then is not None:
            then(request)
        if cut:
            request.cut()
        else:
            request.chunk(b"")

    return answer


def layer(name: str, status: str, current: int | None = None, total: int | None = None) -> dict[str, Any]:
    detail = {"current": current, "total": total} if current is not None else {}
    return {"status": status, "id": name, "progressDetail": detail}


PULL = (
    {"status": "Pulling from vllm/vllm-openai", "id": "v0.33.0"},
    layer("a", "Pulling fs layer"),
    layer("b", "Pulling fs layer"),
    layer("c", "Already exists"),
    layer("b", "Waiting"),
    layer("a", "Downloading", 40, 100),
    layer("a", "Downloading", 100, 100),
    layer("b", "Downloading", 30, 60),
    layer("a", "Verifying Checksum"),
    layer("a", "Extracting", 50, 100),
    layer("b", "Retrying in 5 seconds"),
    layer("b", "Downloading", 10, 60),
    layer("a", "Pull complete"),
    layer("b", "Download complete"),
    layer("b", "Extracting", 60, 60),
    layer("b", "Pull complete"),
    {"status": "Digest: sha256:1"},
    {"status": "Status: Downloaded newer image"},
)


def pulled(
    docker: Engine, reference: str = IMAGE, *, auth: RegistryLogin | None = None, silence: float = LONG
) -> Told:
    told: Told = []
    images.pull(docker, reference, auth=auth, on_progress=lambda *each: told.append(each), silence=silence)
    return told


def failure(docker: Engine, *, silence: float = LONG) -> PullFailed:
    with pytest.raises(PullFailed) as failed:
        pulled(docker, silence=silence)
    return failed.value


def test_an_image_is_described(reached: Reached) -> None:
    docker, _ = reached({f"GET /images/{IMAGE}/json": FOUND})

    found = images.inspect_image(docker, IMAGE)

    assert found is not None
    assert (found.id, found.digests, found.architecture) == (ID, ("vllm/vllm-openai@sha256:1",), "amd64")
    assert found.env == (("CUDA_VERSION", "12.9.1"), ("A", "b=c"), ("EMPTY", ""))
    assert found.labels == (("a", "1"), ("b", "2"))
    assert (found.entrypoint, found.command, found.size_bytes) == (("vllm", "serve"), (), 20_000)
    assert images.inspect_image(docker, "nothing") is None


def test_a_pull_counts_every_byte_once(reached: Reached) -> None:
    docker, server = reached({"POST /images/create": events(*PULL), f"GET /images/{IMAGE}/json": FOUND})

    told = pulled(docker)

    assert told[-1] == (160, 160, "unpacking")
    assert [each[0] for each in told] == sorted(each[0] for each in told)
    assert (20, None, "downloading") in told  # the size of the second layer is not known yet
    assert (65, 160, "downloading") in told
    assert server.asked[1].endswith("/images/create?fromImage=vllm%2Fvllm-openai&tag=v0.33.0")


def test_the_seconds_of_the_containerd_store_are_no_bytes(reached: Reached) -> None:
    unpacking = {"status": "Extracting", "id": "a", "progressDetail": {"current": 9000, "units": "s"}}
    documents = (layer("a", "Downloading", 100, 100), unpacking, layer("a", "Pull complete"))
    docker, _ = reached({"POST /images/create": events(*documents), f"GET /images/{IMAGE}/json": FOUND})

    assert pulled(docker) == [(50, 100, "unpacking"), (50, 100, "unpacking"), (100, 100, "unpacking")]


@pytest.mark.parametrize(
    ("reference", "asked"),
    [
        ("vllm", "fromImage=vllm&tag=latest"),
        ("r.example.com:5000/a/b", "fromImage=r.example.com%3A5000%2Fa%2Fb&tag=latest"),
        ("r.example.com:5000/a/b:1", "fromImage=r.example.com%3A5000%2Fa%2Fb&tag=1"),
        ("a/b@sha256:12", "fromImage=a%2Fb&tag=sha256%3A12"),
        ("localhost:5000/b:1@sha256:12", "fromImage=localhost%3A5000%2Fb&tag=sha256%3A12"),
    ],
)
def test_references_are_asked_for_with_tag_or_digest(reached: Reached, reference: str, asked: str) -> None:
    docker, server = reached({"POST /images/create": events(), f"GET /images/{reference}/json": FOUND})

    pulled(docker, reference)

    assert server.asked[1].endswith(f"/images/create?{asked}")


def test_the_login_of_this_machine_goes_with_the_pull_and_nowhere_else(
    reached: Reached, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"auths": {"r": {"auth": "dTpw"}}}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    seen: list[str | None] = []

    def create(request: Request) -> None:
        seen.append(request.headers.get("X-Registry-Auth"))
        events()(request)

    docker, _ = reached({"POST /images/create": create, f"GET /images/{IMAGE}/json": FOUND})
    pulled(docker)
    pulled(docker, auth=RegistryLogin(registry="r", secret={"username": "u", "password": "ü?>"}))

    assert seen[0] is None
    assert json.loads(base64.urlsafe_b64decode(seen[1] or "")) == {"username": "u", "password": "ü?>"}


@pytest.mark.parametrize(
    "words", [{"error": "no space left on device"}, {"errorDetail": {"message": "no space left on device"}}]
)
def test_an_error_among_the_events_ends_the_pull(reached: Reached, words: dict[str, Any]) -> None:
    docker, _ = reached({"POST /images/create": events(*PULL[:6], words), f"GET /images/{IMAGE}/json": FOUND})

    failed = failure(docker)

    assert (failed.cause, failed.detail) == (PullCause.NO_SPACE, "no space left on device")


WORDS = (
    (
        "manifest for vllm/vllm-openai:v0.429 not found: manifest unknown: manifest unknown",
        PullCause.NOT_FOUND,
    ),
    ("pull access denied for x, repository does not exist or may require 'docker login'", PullCause.DENIED),
    ('Head "https://r/v2/x": unauthorized: authentication required', PullCause.DENIED),
    ("Get https://r/v2/x: no basic auth credentials", PullCause.DENIED),
    ("error parsing HTTP 403 response body: Forbidden", PullCause.DENIED),
    ("toomanyrequests: You have reached your pull rate limit.", PullCause.RATE_LIMITED),
    ("received unexpected HTTP status: 429", PullCause.RATE_LIMITED),
    ('Get "https://registry-1.docker.io/v2/": dial tcp: lookup r: no such host', PullCause.NO_REGISTRY),
    ("dial tcp 10.0.0.1:443: connect: connection refused", PullCause.NO_REGISTRY),
    ("http: server gave HTTP response to HTTPS client", PullCause.NO_REGISTRY),
    ("x509: certificate signed by unknown authority", PullCause.NO_REGISTRY),
    (
        "net/http: request canceled while waiting for connection (Client.Timeout exceeded)",
        PullCause.NO_REGISTRY,
    ),
    ("received unexpected HTTP status: 503 Service Unavailable", PullCause.NO_REGISTRY),
    ("unexpected EOF", PullCause.NO_REGISTRY),
    ("write /srv/docker/tmp/x: no space left on device", PullCause.NO_SPACE),
    ("no matching manifest for linux/arm64/v8 in the manifest list entries", PullCause.WRONG_ARCHITECTURE),
    (
        "image with reference x was found but does not match the specified platform",
        PullCause.WRONG_ARCHITECTURE,
    ),
    ("something nobody has seen", PullCause.OTHER),
)


@pytest.mark.parametrize(("words", "cause"), WORDS)
def test_words_have_causes(words: str, cause: PullCause) -> None:
    assert pull_cause(words) is cause


@pytest.mark.parametrize(
    ("status", "message", "cause"),
    [
        (404, "manifest unknown", PullCause.NOT_FOUND),
        (404, "no idea", PullCause.NOT_FOUND),
        (403, "no idea", PullCause.DENIED),
        (500, "toomanyrequests: slow down", PullCause.RATE_LIMITED),
        (500, "no idea", PullCause.OTHER),
    ],
)
def test_a_pull_that_is_refused_at_once_has_a_cause(
    reached: Reached, status: int, message: str, cause: PullCause
) -> None:
    docker, _ = reached(
        {"POST /images/create": lambda request: request.document({"message": message}, status)}
    )

    failed = failure(docker)

    assert (failed.cause, failed.detail) == (cause, message)


@pytest.mark.parametrize("head", [True, False])
def test_a_pull_without_a_word_is_stalled(reached: Reached, head: bool) -> None:
    answer = hang if head else events(*PULL[:6], then=hang, cut=True)
    docker, _ = reached({"POST /images/create": answer})

    assert failure(docker, silence=SHORT).cause is PullCause.STALLED


def test_a_pull_whose_stream_is_cut_is_lost(reached: Reached) -> None:
    docker, _ = reached(
        {"POST /images/create": events(*PULL[:6], cut=True), f"GET /images/{IMAGE}/json": FOUND}
    )

    failed = failure(docker)

    assert failed.cause is PullCause.LOST
    assert "ended prematurely" in failed.detail


def test_a_pull_that_says_nothing_sensible_is_lost(reached: Reached) -> None:
    def nonsense(request: Request) -> None:
        request.start_chunks()
        request.chunk(b"<html>\n")
        request.chunk(b"")

    docker, _ = reached({"POST /images/create": nonsense})

    assert failure(docker).cause is PullCause.LOST


def test_a_pull_that_brought_nothing_is_no_success(reached: Reached) -> None:
    docker, _ = reached({"POST /images/create": events(*PULL)})

    assert failure(docker).cause is PullCause.OTHER


def test_a_cancelled_pull_is_told_as_cancelled(reached: Reached) -> None:
    class Cancelled(LocalConnection):
        cancellation = Cancellation()

        def open_socket(self, path: str, *, timeout: float) -> Any:
            self.cancellation.check()
            return super().open_socket(path, timeout=timeout)

    connection = Cancelled()
    docker, _ = reached(
        {"POST /images/create": events(then=lambda _: connection.cancellation.cancel(), cut=True)},
        connection=connection,
    )

    with pytest.raises(ConnectionFailed) as failed:
        pulled(docker)

    assert failed.value.stage is Stage.CANCELLED


def test_whoever_watches_may_end_a_pull(reached: Reached) -> None:
    begun, left = threading.Event(), threading.Event()

    def watch(request: Request) -> None:
        begun.set()
        try:
            while True:
                request.chunk(b'{"status": "Waiting", "id": "a"}\n')
        except OSError:
            left.set()
            raise

    def stop(*_: object) -> None:
        assert begun.wait(LONG), "all lines before are written: only the watcher is cut off"
        raise KeyboardInterrupt

    docker, _ = reached({"POST /images/create": events(*PULL[:6], then=watch)})
    with pytest.raises(KeyboardInterrupt):
        images.pull(docker, IMAGE, auth=None, on_progress=stop, silence=LONG)

    assert left.wait(LONG)


# ----------------------------------------------------------------------------------------------------- carried over

ARCHIVE = bytes(range(256)) * 4096


def saving(
    *pieces: bytes, cut: bool = False, then: Callable[[Request], None] | None = None
) -> dict[str, Any]:
    def answer(request: Request) -> None:
        request.start_chunks("application/x-tar")
        for piece in pieces:
            request.chunk(piece)
        if then is not None:
            then(request)
        if cut:
            request.cut()
        else:
            request.chunk(b"")

    return {f"GET /images/{ID}/get": answer}


def loading(received: list[bytes], *documents: Any) -> dict[str, Any]:
    def answer(request: Request) -> None:
        received.append(request.body())
        events(*documents)(_Read(request))

    return {"POST /images/load": answer, f"GET /images/{ID}/json": FOUND}


class _Read:
    """A request whose body was read."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def body(self) -> bytes:
        return b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


LOADED = {"stream": f"Loaded image ID: {ID}\n"}


def copied(source: Engine, target: Engine, told: Told | None = None) -> str:
    return images.copy_image(
        source,
        target,
        ID,
        total_bytes=len(ARCHIVE),
        on_progress=lambda *each: (told if told is not None else []).append(each),
        silence=LONG,
    )


def test_an_image_is_carried_from_one_engine_to_another(reached: Reached) -> None:
    received: list[bytes] = []
    source, _ = reached(saving(*(ARCHIVE[at : at + 100_000] for at in range(0, len(ARCHIVE), 100_000))))
    target, asked = reached(loading(received, layer("x", "Loading layer", 5, 10), LOADED))
    told: Told = []

    assert copied(source, target, told) == ID
    assert received == [ARCHIVE]
    assert told[-2:] == [(len(ARCHIVE), len(ARCHIVE), "copying"), (5, 10, "unpacking")]
    assert asked.asked[1].endswith("/images/load?quiet=0")


def test_an_image_that_another_store_names_otherwise_is_found_by_what_was_said(reached: Reached) -> None:
    other = {**FOUND, "Id": "sha256:other"}
    source, _ = reached(saving(b"x"))
    answers = loading([], {"stream": "Loaded image ID: sha256:other\n"})
    del answers[f"GET /images/{ID}/json"]
    target, _ = reached({**answers, "GET /images/sha256:other/json": other})

    assert copied(source, target) == "sha256:other"


def test_a_source_that_breaks_off_is_told_as_the_source_and_nothing_is_loaded(reached: Reached) -> None:
    whole: list[bytes] = []
    source, _ = reached(saving(b"x" * 1000, cut=True))
    target, _ = reached(loading(whole, LOADED))

    with pytest.raises(LoadFailed) as failed:
        copied(source, target)

    assert (failed.value.cause, failed.value.at_source) == (PullCause.LOST, True)
    assert whole == []


def test_an_image_the_source_does_not_have_is_told(reached: Reached) -> None:
    source, _ = reached(
        {f"GET /images/{ID}/get": lambda r: r.document({"message": f"No such image: {ID}"}, 404)}
    )
    target, server = reached({})

    with pytest.raises(LoadFailed) as failed:
        copied(source, target)

    assert (failed.value.cause, failed.value.at_source) == (PullCause.NOT_FOUND, True)
    assert server.asked == ["GET /version"]


def test_a_full_disk_is_told_though_not_everything_was_sent(reached: Reached) -> None:
    def full(request: Request) -> None:
        next(request.chunks())
        events({"error": "write x: no space left on device"})(_Read(request))
        request.close_connection = True

    def endless(request: Request) -> None:
        while True:
            request.chunk(ARCHIVE)

    source, _ = reached(saving(then=endless))
    target, _ = reached({"POST /images/load": full})

    with pytest.raises(LoadFailed) as failed:
        copied(source, target)

    assert (failed.value.cause, failed.value.at_source) == (PullCause.NO_SPACE, False)


def test_a_target_that_dies_is_told_as_the_target(reached: Reached) -> None:
    source, _ = reached(saving(*[ARCHIVE] * 8))
    target, _ = reached({"POST /images/load": lambda request: request.cut()})

    with pytest.raises(LoadFailed) as failed:
        copied(source, target)

    assert (failed.value.cause, failed.value.at_source) == (PullCause.LOST, False)


def test_a_load_that_brought_nothing_is_no_success(reached: Reached) -> None:
    source, _ = reached(saving(b"x"))
    target, _ = reached(
        {**loading([]), f"GET /images/{ID}/json": lambda r: r.document({"message": "no"}, 404)}
    )

    with pytest.raises(LoadFailed, match="has no such image"):
        copied(source, target)


def test_a_source_is_read_no_faster_than_the_target_takes(reached: Reached) -> None:
    go, sent = threading.Event(), [0]

    def eager(request: Request) -> None:
        for _ in range(64):
            request.chunk(ARCHIVE)
            sent[0] += 1

    def slow(request: Request) -> None:
        chunks = request.chunks()
        next(chunks)
        go.wait(LONG)
        assert sum(1 for _ in chunks) > 0
        events(LOADED)(_Read(request))

    source, _ = reached(saving(then=eager))
    target, _ = reached({"POST /images/load": slow, f"GET /images/{ID}/json": FOUND})
    told: Told = []
    copying = threading.Thread(target=copied, args=(source, target, told), daemon=True)
    copying.start()
    copying.join(SHORT)
    before = sent[0]
    go.set()
    copying.join(LONG)

    assert before < 32
    assert told[-1][0] == 64 * len(ARCHIVE)


def test_an_archive_of_this_machine_is_loaded(reached: Reached, tmp_path: Path) -> None:
    received: list[bytes] = []
    docker, _ = reached(
        loading(received, {"stream": "Loaded image: a:1\n"}, {"stream": "Loaded image: b:1\n"})
    )
    (tmp_path / "image.tar").write_bytes(ARCHIVE)
    told: Told = []

    names = images.load_file(docker, tmp_path / "image.tar", lambda *each: told.append(each))

    assert names == ("a:1", "b:1")
    assert received == [ARCHIVE]
    assert told[-1] == (len(ARCHIVE), len(ARCHIVE), "copying")


def test_an_archive_the_engine_cannot_read_is_told(reached: Reached, tmp_path: Path) -> None:
    docker, _ = reached(loading([], {"errorDetail": {"message": "invalid tar header"}}))
    (tmp_path / "image.tar").write_bytes(b"no tar")

    with pytest.raises(LoadFailed, match="invalid tar header"):
        images.load_file(docker, tmp_path / "image.tar", lambda *_: None)
