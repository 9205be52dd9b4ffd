"""Memory that has to come back after a stop: what is owed, and waiting for it."""

import json
from collections.abc import Sequence
from typing import Any

from gpuplan.deploying.observed import Container, container_of
from gpuplan.domain import labels
from gpuplan.domain.fleet import Gpu, GpuProcess
from gpuplan.operations.memory_back import Owed, await_memory, owed
from gpuplan.units import GIB


def gpu(free: int, **more: Any) -> Gpu:
    return Gpu(index=3, name="H100", uuid="GPU-1", total_bytes=80 * GIB, free_bytes=free * GIB, **more)


def container(claim: int = 70, status: str = "running", identity: str = "c1") -> Container:
    given = {labels.CLAIMS: json.dumps({"GPU-1": claim * GIB})}
    state = {"Id": identity, "Name": "/c", "State": {"Status": status}, "Config": {"Labels": given}}
    return container_of("h", state)


class Hosts:
    """A fleet whose GPU is read again and again; the last reading stays."""

    def __init__(self, *free: int) -> None:
        self.free = list(free)
        self.read = 0

    def gpus_now(self, name: str) -> Sequence[Gpu]:
        assert name == "h"
        self.read += 1
        return (gpu(self.free.pop(0) if len(self.free) > 1 else self.free[0]),)


def waited(hosts: Hosts, seconds: float = 60) -> tuple[Any, ...]:
    due = Owed(host="h", uuid="GPU-1", index=3, free_before=8 * GIB, held=70 * GIB)

    def read(names: Sequence[str]) -> dict[str, Sequence[Gpu]]:
        return {name: hosts.gpus_now(name) for name in names}

    return await_memory(read, [due], seconds=seconds, pause=lambda _: None)


def test_what_is_owed_is_what_was_held() -> None:
    assert owed([container()], {"h": (gpu(8),)})[0].held == 70 * GIB
    assert owed([container()], {"h": (gpu(60),)})[0].held == 20 * GIB, "no more than is in use"
    mine = GpuProcess(pid=1, used_bytes=5 * GIB, container="c1")
    other = GpuProcess(pid=2, used_bytes=60 * GIB, container="c9")
    assert owed([container()], {"h": (gpu(8, processes=(mine, other)),)})[0].held == 5 * GIB


def test_nothing_is_owed_where_nothing_runs_or_nothing_is_known() -> None:
    assert owed([container(status="exited")], {"h": (gpu(8),)}) == ()
    assert owed([container()], {}) == ()
    assert owed([container()], {"h": (gpu(8, unified=True),)}) == ()


def test_it_is_waited_for_until_four_fifths_are_back() -> None:
    hosts = Hosts(8, 30, 63, 64, 70)
    assert waited(hosts) == ()
    assert hosts.read == 4


def test_what_does_not_come_back_is_told() -> None:
    facts = waited(Hosts(20), seconds=0)
    assert [fact.code for fact in facts] == ["GP854"]
    assert facts[0].figures["free_bytes"] == 20 * GIB
