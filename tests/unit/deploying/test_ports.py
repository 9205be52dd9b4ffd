"""Which ports a deployment takes, and which it leaves alone."""

from dataclasses import replace

import pytest

from gpuplan.deploying.ports import preferred_ports, taken_ports
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.host_facts import Docker, OurContainer
from gpuplan.domain.inventory import VllmSettings
from gpuplan.errors import UsageError
from tests.unit.deploying.shapes import PAIRS, Shape, host


def ports_of(shape: Shape, **compiled: object) -> list[int]:
    return [server.port for server in replace(shape, compile=compiled).spec().servers]


def test_port_that_any_member_has_in_use_is_not_taken() -> None:
    taken = {"h1": frozenset({40000}), "h2": frozenset({40001})}
    assert ports_of(PAIRS["mp-2-hosts"], taken=taken) == [40002]


def test_ports_of_the_deployment_that_is_replaced_are_taken_again() -> None:
    preferred = {(0, "http"): 40007, (0, "master"): 40009, (0, "ray"): 41300}
    spec = replace(PAIRS["mp-2-hosts"], compile={"preferred": preferred}).spec()
    assert spec.servers[0].port == 40007
    assert spec.containers[0].command[spec.containers[0].command.index("--master-port") + 1] == "40009"
    clash = {"preferred": preferred, "taken": {"h1": frozenset({40007})}}
    assert ports_of(PAIRS["mp-2-hosts"], **clash) == [40000]
    ray = replace(PAIRS["ray-2-hosts"], compile={"preferred": preferred}).spec()
    assert "--port=41300" in ray.containers[0].command
    outside = {"preferred": {(0, "http"): 8000}}
    assert ports_of(PAIRS["single"], **outside) == [40000]


def test_ray_block_is_free_on_every_member() -> None:
    spec = replace(PAIRS["ray-2-hosts"], compile={"taken": {"h2": frozenset({41055})}}).spec()
    assert "--port=41100" in spec.containers[0].command


def test_exhausted_range_names_the_range_and_its_key() -> None:
    narrow = replace(PAIRS["mp-2-hosts"], settings=VllmSettings(service_ports=(40000, 40000)))
    with pytest.raises(UsageError) as caught:
        narrow.spec()
    assert "40000-40000" in caught.value.message
    assert "service_ports" in (caught.value.hint or "")
    narrow = replace(PAIRS["ray-2-hosts"], settings=VllmSettings(ray_ports=(41000, 41050)))
    with pytest.raises(UsageError, match=r"block of 100 ports in vllm\.ray_ports \(41000-41050\)"):
        narrow.spec()


def test_labels_tell_the_ports_of_a_running_deployment() -> None:
    spec = PAIRS["ray-2-hosts"].spec()
    found = preferred_ports(dict(one.labels) for one in spec.containers)
    assert found == {(0, "http"): 40000, (0, "ray"): 41000}
    assert preferred_ports([{"io.gpuplan.ports": "no json", "io.gpuplan.server": "0"}, {}]) == {}
    again = replace(PAIRS["ray-2-hosts"], compile={"preferred": found}).spec()
    assert repr(again) == repr(spec)


def test_what_listens_is_taken_but_for_what_is_replaced() -> None:
    seen = host(1)
    ours = (
        OurContainer(deployment="mine", ports=(40000,), state="running"),
        OurContainer(deployment="other", ports=(40001,), state="created"),
    )
    facts = replace(seen.facts, listening_ports=(22, 40000, 41003, 41203), docker=Docker(containers=ours))
    fleet = Fleet(hosts=(replace(seen, facts=facts),))
    assert taken_ports(fleet)["h1"] == {22, 40000, 40001, 41003, 41203}
    replaced = taken_ports(fleet, replacing="mine", preferred={(0, "http"): 40000, (0, "ray"): 41000})
    assert replaced["h1"] == {22, 40001, 41203}
