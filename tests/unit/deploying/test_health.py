"""Docker's check of a container, run for real against a server of our own."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gpuplan.deploying.health import health_check


@contextmanager
def server(status: int) -> Iterator[int]:
    """Answers /health with a status; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is http.server's
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield http.server_port
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (404, False)])
def test_healthy_is_what_answers_200(status: int, healthy: bool) -> None:
    with server(status) as port:
        check = health_check("127.0.0.1", port)
        environment = {"PATH": "/usr/bin:/bin", "http_proxy": "http://127.0.0.1:9"}
        ran = subprocess.run(check.command, capture_output=True, env=environment, check=False)
        assert (ran.returncode == 0) is healthy
    assert subprocess.run(check.command, capture_output=True, check=False).returncode != 0


def test_ipv6_is_in_brackets() -> None:
    assert health_check("fd00::1", 40000).command[-1] == "http://[fd00::1]:40000/health"
