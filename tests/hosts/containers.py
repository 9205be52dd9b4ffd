"""Containers started by hand on test hosts, as a deployer starts them: GPUs, the host's network, the model mounted."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.hosts.fleet import STAND_IN, TestHost
from tests.hosts.models import DIRECTORY
from tests.hosts.waiting import wait_for


@dataclass(frozen=True, kw_only=True)
class Started:
    """A container, and the host it is on."""

    host: TestHost
    name: str

    def log(self) -> str:
        """What it wrote, on both streams, in the order it was written."""
        return self.host.run("sh", "-c", f"docker logs {self.name} 2>&1").stdout.decode()

    def await_line(self, text: str) -> None:
        try:
            wait_for(f"{text!r} of {self.name}", lambda: text in self.log())
        except BaseException as error:
            error.add_note(self.log()[-3000:])
            raise

    def state(self) -> dict[str, Any]:
        """Docker's, as `docker inspect` has it."""
        told = self.host.text("docker", "inspect", "--format", "{{json .State}}", self.name)
        found: dict[str, Any] = json.loads(told)
        return found

    def await_end(self) -> int:
        """Its exit status."""
        wait_for(f"the end of {self.name}", lambda: self.state()["Status"] == "exited")
        return int(self.state()["ExitCode"])

    def execute(self, *words: str) -> str:
        return self.host.text("docker", "exec", self.name, *words)


def start(
    host: TestHost,
    name: str,
    *words: str,
    image: str = STAND_IN.tag,
    entrypoint: str = "",
    gpus: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Started:
    """`docker run -d` of these words; `gpus` are UUIDs or indexes, all where there are none."""
    device = "all" if gpus is None else f'"device={",".join(gpus)}"'
    handed = [] if gpus == () else ["--gpus", device]
    variables = [word for key, value in (env or {}).items() for word in ("--env", f"{key}={value}")]
    mounts = ["--mount", f"type=bind,source={DIRECTORY},target={DIRECTORY}"]
    program = ["--entrypoint", entrypoint] if entrypoint else []
    host.run(
        *(
            "docker",
            "run",
            "--detach",
            "--name",
            name,
            "--network=host",
            *handed,
            *variables,
            *mounts,
            *options,
        ),
        *(*program, image, *words),
    )
    return Started(host=host, name=name)


def ask(url: str, body: Mapping[str, object] | None = None, *, key: str | None = None) -> tuple[int, Any]:
    """An HTTP request from this machine: status (0: nobody listens) and body, JSON read."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    if key is not None:
        request.add_header("Authorization", f"Bearer {key}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=20) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            status, text = error.code, error.read().decode()
    except OSError:
        return 0, None
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text
