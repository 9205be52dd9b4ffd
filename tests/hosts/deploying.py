"""What the deploy tests share: a model on every host and here, an inventory, and the command line run to its end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.probe import ProbeOptions
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings
from tests.hosts.fleet import Fleet, TestHost
from tests.hosts.models import lay_model, order, tiny_config, tiny_tensors
from tests.safetensors_files import safetensors_file

LONGEST = 180
"""Seconds after which a deploy of the stand-in has failed to end."""
OURS = "label=io.gpuplan.managed=true"


@dataclass(frozen=True, kw_only=True)
class Site:
    """A fleet with a model, as its user sees it."""

    fleet: Fleet
    directory: Path
    inventory: Path
    model: Path

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "gpuplan", *words, "-i", str(self.inventory)]

    def environment(self, **more: str) -> dict[str, str]:
        state = {
            "XDG_STATE_HOME": str(self.directory / "state"),
            "XDG_CACHE_HOME": str(self.directory / "cache"),
            "GPUPLAN_DEBUG": "1",
        }
        return {**self.fleet.environment(), **state, **more}

    def run(
        self, *words: str, engine: tuple[str, ...] = (), status: int | None = 0, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; `status` is what it must exit with."""
        command = self.command(*words) + (["--", *engine] if engine else [])
        done = subprocess.run(
            command,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        if status is not None:
            assert done.returncode == status, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def deploy(
        self, *words: str, engine: tuple[str, ...] = (), status: int | None = 0, **more: str
    ) -> "Deployed":
        """`gpuplan deploy MODEL --yes -o json`, and its events."""
        done = self.run(
            "deploy", str(self.model), "--yes", "-o", "json", *words, engine=engine, status=status, **more
        )
        return Deployed(done=done)

    def begin(self, *words: str, engine: tuple[str, ...] = ()) -> "Running":
        """The same, left to run; its lines are read one by one."""
        command = self.command("deploy", str(self.model), "--yes", "-o", "json", *words)
        with (self.directory / "stderr.txt").open("w") as errors:
            process = subprocess.Popen(
                command + (["--", *engine] if engine else []),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        return Running(process)

    def faults(self, host: str, faults: Mapping[str, Mapping[str, object]]) -> None:
        """What the engines on a host are to do wrong."""
        order(self.fleet[host], f"/srv/models/{self.model.name}", faults)

    def ours(self) -> dict[str, list[str]]:
        """Names of our containers on every host, whatever their state."""
        return {host.name: containers(host) for host in self.fleet}

    def all_ours(self) -> list[str]:
        """Names of our containers on all hosts."""
        return [name for names in self.ours().values() for name in names]

    def status(self, *words: str) -> list[dict[str, Any]]:
        """The deployments as `status -o json` tells them."""
        document: dict[str, Any] = json.loads(self.run("status", *words, "-o", "json").stdout)
        listed: list[dict[str, Any]] = document["deployments"]
        return listed


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """A deploy that came to its end."""

    done: subprocess.CompletedProcess[str]

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.done.stdout.splitlines()]

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.lines if "event" in line]

    @property
    def last(self) -> dict[str, Any]:
        return self.lines[-1]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("event") == event]

    @property
    def codes(self) -> list[str]:
        """Codes of everything that was told, in order."""
        facts = [fact for line in self.of("failed") for fact in line["findings"]]
        facts += [line["finding"] for line in self.of("remark")]
        return [fact["code"] for fact in facts]


class Running:
    """A deploy under way."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    def until(self, **wanted: str) -> dict[str, Any]:
        """Read events until one has these values."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            line: dict[str, Any] = json.loads(text)
            self.lines.append(line)
            if all(line.get(key) == value for key, value in wanted.items()):
                return line
        raise AssertionError(f"no event with {wanted} in {self.lines}")

    def kill(self) -> None:
        with self.process:
            self.process.kill()

    def interrupt(self) -> int:
        """Ctrl-C; the exit status, its output read to the end."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.end()

    def end(self) -> int:
        assert self.process.stdout is not None
        with self.process:
            for text in self.process.stdout:
                self.lines.append(json.loads(text))
            return self.process.wait(LONGEST)


def containers(host: TestHost) -> list[str]:
    """Names of our containers on a host."""
    return sorted(host.text("docker", "ps", "-a", "--filter", OURS, "--format", "{{.Names}}").split())


def hide(host: TestHost, directory: Path) -> None:
    """Have a host not see a directory of this machine, whose files the test hosts share."""
    host.run("mount", "-t", "tmpfs", "tmpfs", str(directory))
    host.later(lambda: host.run("umount", "-l", str(directory)))


def lay_site(fleet: Fleet, directory: Path, **vllm: object) -> Site:
    """The tiny model here and on every host, and the inventory of all."""
    model = directory / "tiny"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(tiny_config()))
    (model / "model.safetensors").write_bytes(safetensors_file(tiny_tensors()))
    for host in fleet:
        lay_model(host)
        hide(host, directory)
    inventory = fleet.inventory(directory / "inventory.yaml", vllm=vllm or None)
    return Site(fleet=fleet, directory=directory, inventory=inventory, model=model)


def fleet_options(site: Site, directory: Path) -> FleetOptions:
    """How operations called in this process reach the hosts of a site; what they learn of keys lies in `directory`."""
    reach = ProbeOptions(
        ssh=SshSettings(
            known_hosts=directory / "known_hosts",
            home=directory,
            policy=HostKeyPolicy.ACCEPT_NEW,
            environ={"PATH": os.environ["PATH"]},
            system_config=directory / "none",
            system_known_hosts=(),
        )
    )
    return FleetOptions(
        environ=site.environment(), cwd=directory, inventory=site.inventory, reach=lambda: replace(reach)
    )
