"""Requests in flight as a probe finds them (S4.6): asked of the servers of ours, bounded, and never a reason to fail."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gpuplan.domain import labels
from gpuplan.domain.host_facts import Docker, OurContainer
from gpuplan.operations import server_loads
from gpuplan.operations.server_loads import with_loads
from gpuplan.probing.docker import DockerReport
from gpuplan.probing.docker_containers import our_containers, servers
from gpuplan.remote.connection import ConnectionFailed, Stage, Stream
from gpuplan.remote.local import LocalConnection
from gpuplan.remote.recorded import RecordedConnection, Recording

METRICS = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
"""


class _Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path == "/metrics"
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(METRICS if known else b"")

    def log_message(self, *_arguments: Any) -> None:
        """Nothing is printed."""


@pytest.fixture
def port() -> Any:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Metrics)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def listed(name: str, url: str = "http://10.0.0.1:40000", **more: str) -> dict[str, Any]:
    given = {labels.MANAGED: "true", labels.DEPLOYMENT: name, labels.ENDPOINT: url}
    return {
        "Id": name,
        "Names": [f"/{name}"],
        "State": more.pop("state", "running"),
        "Status": more.pop("status", "Up 2 hours (healthy)"),
        "Labels": given | more,
    }


def report(*asked: tuple[str, str, int]) -> DockerReport:
    ours = tuple(OurContainer(id=identity, deployment=identity, state="running") for identity, _, _ in asked)
    return DockerReport(docker=Docker(containers=ours), servers=asked)


def requests(found: DockerReport) -> list[tuple[int | None, int | None]]:
    assert found.docker is not None
    return [(one.running_requests, one.waiting_requests) for one in found.docker.containers]


def test_a_server_says_how_many_requests_it_has(port: int) -> None:
    found = with_loads(LocalConnection(), report(("a", "127.0.0.1", port)))
    assert requests(found) == [(2, 1)]


def test_one_that_does_not_answer_leaves_them_unknown(port: int) -> None:
    found = with_loads(LocalConnection(), report(("gone", "127.0.0.1", 1), ("a", "127.0.0.1", port)))
    assert requests(found) == [(None, None), (2, 1)]


def test_a_host_that_opens_no_ports_is_read_all_the_same() -> None:
    found = with_loads(RecordedConnection(Recording()), report(("a", "127.0.0.1", 1)))
    assert requests(found) == [(None, None)]


class _Lost(RecordedConnection):
    """A connection that is lost with the first question."""

    asked = 0

    def open_port(self, address: str, port: int, *, timeout: float) -> Stream:
        del address, port, timeout
        self.asked += 1
        raise ConnectionFailed(Stage.COMMAND, "lost")


def test_a_lost_connection_is_asked_no_more() -> None:
    lost = _Lost(Recording())
    found = with_loads(lost, report(("a", "127.0.0.1", 1), ("b", "127.0.0.1", 2)))
    assert requests(found) == [(None, None)] * 2
    assert lost.asked == 1


def test_when_the_time_is_up_the_rest_is_not_asked(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(server_loads, "BUDGET_SECONDS", 0.0)
    assert requests(with_loads(LocalConnection(), report(("a", "127.0.0.1", port)))) == [(None, None)]


def test_only_servers_of_ours_that_serve_are_asked() -> None:
    entries = [
        listed("a"),
        listed("six", "http://[fd00::1]:40001"),
        listed("loading", status="Up 5 seconds (health: starting)"),
        listed("ended", state="exited"),
        listed("follower", ""),
        listed("elsewhere", "https://10.0.0.1:1/../metrics"),
        {**listed("theirs"), "Labels": {labels.ENDPOINT: "http://10.0.0.1:40000"}},
    ]
    assert servers(entries) == (("a", "10.0.0.1", 40000), ("six", "fd00::1", 40001))


@pytest.mark.parametrize(
    ("label", "seconds"),
    [("600", 600), ("-1", -1), ("0", 0), ("", None), ("1e3", None), ("--1", None), ("9" * 20, None)],
)
def test_the_keep_alive_is_read_from_the_label(label: str, seconds: int | None) -> None:
    (one,) = our_containers([listed("a", **{labels.KEEP_ALIVE: label})])
    assert one.keep_alive_seconds == seconds
