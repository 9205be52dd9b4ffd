"""No test sees the user's settings, or a network beyond this machine."""

import importlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import settings

_OF_THE_USER = (
    "COLUMNS",
    "GPUPLAN_DEBUG",
    "GPUPLAN_INVENTORY",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HUGGING_FACE_HUB_TOKEN",
    "LINES",
    "NO_COLOR",
    "VLLM_PP_LAYER_PARTITION",
)
_TEST_HOSTS = ip_network("198.18.0.0/15")
"""Set apart for tests (RFC 2544): hosts made on this machine have their addresses there."""
_PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy")


def _leave_the_user_out(home: Path) -> None:
    """Put every directory gpuplan or the hub client uses below `home`; runs before either is imported."""
    for name in (*_OF_THE_USER, *_PROXIES):
        os.environ.pop(name, None)
    os.environ["HOME"] = str(home)
    os.environ["HF_HOME"] = str(home / "hf")
    for name in ("HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"):
        os.environ.pop(name, None)
    for name in ("CACHE", "CONFIG", "STATE"):
        os.environ[f"XDG_{name}_HOME"] = str(home / name.lower())


def _is_this_machine(host: object) -> bool:
    if not isinstance(host, str) or host in {"", "localhost"}:
        return True
    try:
        address = ip_address(host)
        return address.is_loopback or address in _TEST_HOSTS
    except ValueError:
        return False


def _stay_on_this_machine(event: str, arguments: tuple[object, ...]) -> None:
    """Audit hook: every test runs as if the cable were pulled; servers on loopback and hosts made here are reachable."""
    if event == "socket.getaddrinfo" and not _is_this_machine(arguments[0]):
        raise socket.gaierror(socket.EAI_NONAME, f"tests are offline: {arguments[0]}")
    if event == "socket.connect":
        address = arguments[1]
        if isinstance(address, tuple) and not _is_this_machine(address[0]):
            raise ConnectionRefusedError(f"tests are offline: {address[0]}")


_home = tempfile.TemporaryDirectory(prefix="gpuplan-tests-")


def pytest_configure() -> None:
    _leave_the_user_out(Path(_home.name))
    # the hub client reads its settings when it is imported: whichever test comes first must not choose them for all
    importlib.import_module("huggingface_hub.constants")
    sys.addaudithook(_stay_on_this_machine)


def pytest_unconfigure() -> None:
    _home.cleanup()


settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def nothing_learned_for_other_tests() -> Iterator[None]:
    """A lesson in the tests' own state directory would change the figures of every test after it in the same worker."""
    yield
    left = Path(_home.name) / "state" / "gpuplan" / "calibration" / "lessons.jsonl"
    if left.exists():
        left.unlink()
        pytest.fail(
            f"the test taught the others: it left a lesson in {left}; give it a state directory of its own"
        )
