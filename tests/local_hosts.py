"""Hosts that are directories of this machine: a real shell, each with a home of its own."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.host_facts import HostFacts
from gpuplan.domain.inventory import HostEntry, Inventory, VllmSettings
from gpuplan.remote.connection import Completed, ConnectionFailed, SocketRefused, Stage, Stream


class HomeConnection:
    """Commands of this machine, with another home."""

    address = None

    def __init__(self, home: Path) -> None:
        self.home = home
        self.lost = False
        self.scripts: list[str] = []

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float,
        limit: int = 0,
        silence: float | None = None,
    ) -> Completed:
        if self.lost:
            raise ConnectionFailed(Stage.COMMAND, "connection reset by the other side")
        self.scripts.append(stdin.decode())
        done = subprocess.run(
            list(command),
            input=stdin,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return Completed(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def open_socket(self, path: str, *, timeout: float) -> Stream:
        raise SocketRefused("no")

    def open_port(self, address: str, port: int, *, timeout: float) -> Stream:
        raise SocketRefused("no")

    def open_command(self, command: Sequence[str], *, timeout: float) -> Stream:
        raise SocketRefused("no")

    def close(self) -> None:
        pass


class LocalHosts:
    """An open fleet of such hosts, homes and `model_dir` below `root`/NAME."""

    def __init__(self, root: Path, *names: str, settings: VllmSettings | None = None) -> None:
        self.root = root
        self.homes = {name: root / name / "home" for name in names}
        self.model_dirs = {name: root / name / "models" for name in names}
        for path in (*self.homes.values(), *self.model_dirs.values()):
            path.mkdir(parents=True)
        self.connections: Mapping[str, HomeConnection] = {
            name: HomeConnection(home) for name, home in self.homes.items()
        }
        self.entries = {
            name: HostEntry(name=name, address=name, model_dir=str(self.model_dirs[name])) for name in names
        }
        self.inventory = Inventory(
            path="inventory.yaml",
            hosts=tuple(self.entries.values()),
            vllm=settings or VllmSettings(),
        )
        self.fleet = Fleet(hosts=tuple(Host(name=name, facts=HostFacts(user="ada")) for name in names))
        self.reopened: list[str] = []

    def without_model_dir(self, *names: str) -> None:
        for name in names:
            self.entries[name] = replace(self.entries[name], model_dir=None)

    def engine_of(self, host: str) -> Any:
        raise AssertionError("these hosts have no engine")

    def reopen(self, host: str) -> None:
        self.reopened.append(host)
