"""When a trial has heard enough."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpuplan.engine.startup_log import milestone
from gpuplan.operations.verify_measures import Measured

READY = (
    "INFO 11-22 08:00:00 [core.py:1] init engine (profile, create kv cache, warmup model) took 12.5 seconds"
)
SERVES = "INFO:     Application startup complete."
CACHE = "INFO 11-22 08:00:00 [gpu_worker.py:1] Available KV cache memory: 40.00 GiB"


def measured(data: int, servers: int) -> Measured:
    prepared: Any = SimpleNamespace(
        candidate=SimpleNamespace(parallelism=SimpleNamespace(data=data)),
        spec=SimpleNamespace(servers=[SimpleNamespace(number=n) for n in range(servers)], served_name="m"),
    )
    return Measured(prepared)


def say(one: Measured, line: str, *, server: int = 0, host: str = "h1") -> None:
    spec: Any = SimpleNamespace(host=host, name=f"c{server}", server=server)
    found = milestone(line)
    assert found is not None
    one.hear(spec, found)


@pytest.mark.parametrize(("data", "servers"), [(1, 1), (4, 1), (3, 3)])
def test_each_engine_says_it_once(data: int, servers: int) -> None:
    one = measured(data, servers)
    say(one, CACHE)
    for number in range(data):
        assert not one.whole
        say(one, READY, server=number % servers, host=f"h{number}")
    assert one.whole


def test_who_serves_has_said_it_all() -> None:
    one = measured(2, 2)
    say(one, SERVES, server=0)
    assert not one.whole
    say(one, SERVES, server=1)
    assert one.whole
