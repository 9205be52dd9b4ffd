"""A container with all GPUs, run once on a host and removed: what `docker run --rm --gpus all IMAGE nvidia-smi -L` shows."""

import re
import secrets
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from gpuplan.domain.labels import DEPLOYMENT, MANAGED, ROLE
from gpuplan.domain.secret_text import masked
from gpuplan.planning.preflight_measures import GpuTest, GpuTestOutcome
from gpuplan.remote.connection import ConnectionFailed, SocketRefused

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = ("nvidia-smi", "-L")
LABELS = {
    MANAGED: "true",
    DEPLOYMENT: "gpuplan-check",
    ROLE: "gpu-test",
}
_UUID = re.compile(r"\(UUID: ((?:GPU|MIG)-[0-9A-Za-z/-]+)\)")
_CARD = re.compile(r"^GPU \d+:", re.MULTILINE)
_LONGEST_DETAIL = 300
_LONGEST_OUTPUT = 256 * 1024
_NO_TOOL = ("executable file not found", "no such file or directory")


class Serves(Protocol):
    """The part of an engine that is needed here."""

    @property
    def api(self) -> Any: ...


def run_gpu_test(engine_of: "Callable[[], Serves]", image_id: str, image: str, seconds: float) -> GpuTest:
    """Run the container and read which GPUs it lists; it is removed whatever happens.

    The engine removes it when it ends, so that a connection lost in between leaves nothing. Failures are the outcome.
    """
    from docker.errors import DockerException
    from docker.types import DeviceRequest, LogConfig
    from requests.exceptions import RequestException

    from gpuplan.remote.docker_engine import EngineFailed

    try:
        api = engine_of().api
        container = api.create_container(
            image_id,
            name=f"gpuplan-check-{secrets.token_hex(4)}",
            entrypoint=list(COMMAND),
            command=[],
            labels=LABELS,
            network_disabled=True,
            host_config=api.create_host_config(
                auto_remove=True,
                network_mode="none",
                log_config=LogConfig(type="none"),
                device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])],
            ),
        )["Id"]
        try:
            return _outcome(*_printed(api, container, seconds), image=image, seconds=seconds)
        finally:
            with suppress(DockerException, RequestException, ConnectionFailed, OSError):
                api.remove_container(container, force=True)
    except (
        DockerException,
        RequestException,
        EngineFailed,
        ConnectionFailed,
        SocketRefused,
        OSError,
    ) as error:
        return _failed(_words(error), image)


def _printed(api: Any, container: str, seconds: float) -> tuple[str, bool]:
    """What the container printed, and whether it had to be killed. Attached before it starts: then nothing is missed."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    output = api.attach(container, stdout=True, stderr=True, stream=True, logs=False)
    killed = threading.Event()

    def kill() -> None:
        killed.set()
        with suppress(DockerException, RequestException, ConnectionFailed, OSError):
            api.kill(container)

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    api.start(container)
    timer.start()
    printed = b""
    try:
        for chunk in output:
            printed += chunk
            if len(printed) > _LONGEST_OUTPUT:
                break
    finally:
        timer.cancel()
    return printed.decode(errors="replace"), killed.is_set()


def _outcome(text: str, killed: bool, *, image: str, seconds: float) -> GpuTest:
    if killed:
        return GpuTest(outcome=GpuTestOutcome.TIMED_OUT, image=image, seconds=seconds, detail=_line(text))
    if not _CARD.search(text):
        return _failed(_line(text) or "it printed nothing", image)
    return GpuTest(outcome=GpuTestOutcome.SEEN, image=image, uuids=tuple(_UUID.findall(text)))


def _failed(detail: str, image: str) -> GpuTest:
    lacking = "nvidia-smi" in detail and any(words in detail.lower() for words in _NO_TOOL)
    outcome = GpuTestOutcome.NO_TOOL if lacking else GpuTestOutcome.FAILED
    return GpuTest(outcome=outcome, image=image, detail=detail)


def _words(error: Exception) -> str:
    """The engine's own explanation where it gave one."""
    return _line(str(getattr(error, "explanation", None) or error))


def _line(text: str) -> str:
    return " ".join(masked(text).split())[:_LONGEST_DETAIL]
