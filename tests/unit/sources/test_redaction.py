"""A redacted snapshot names nobody and still plans as the real one."""

from dataclasses import replace

from gpuplan.domain.fleet import Fleet, Host
from gpuplan.sources.redaction import redacted
from gpuplan.sources.snapshot_json import dump, dumps, parse
from tests.fleets import probed_fleet

TELLING = (
    "acme",
    "alice",
    "10.20.30.4",
    "fd00::11",
    "172.17.0.1",
    "secret-project",
    "0123456789abcdef",
    "gpu-one",
)


def test_no_name_address_or_user_is_left() -> None:
    before, after = dumps(probed_fleet()), dumps(redacted(probed_fleet()))
    assert [word for word in TELLING if word not in before] == [], (
        "a word that was never there proves nothing"
    )
    assert [word for word in TELLING if word in after] == []


def test_numbers_and_public_names_stay() -> None:
    fleet = redacted(probed_fleet())
    host, lost = fleet.hosts
    assert (host.name, lost.name) == ("host-1", "host-2")
    real = probed_fleet().hosts[0]
    assert [(gpu.total_bytes, gpu.free_bytes, gpu.name) for gpu in host.gpus] == [
        (gpu.total_bytes, gpu.free_bytes, gpu.name) for gpu in real.gpus
    ]
    assert host.gpus[0].processes[0].used_bytes == real.gpus[0].processes[0].used_bytes
    assert host.facts.docker is not None
    assert host.facts.docker.images[0].tags[0] == "vllm/vllm-openai:v0.33.0"
    assert host.facts.kernel == real.facts.kernel
    assert host.facts.disks[0].free_bytes == real.facts.disks[0].free_bytes
    assert lost.failure is not None
    assert lost.failure.stage == "authenticate"
    assert "the server refused every key" in lost.failure.detail


def test_equal_names_have_equal_stand_ins() -> None:
    host = redacted(probed_fleet()).hosts[0]
    assert host.gpus[0].processes[0].user == host.facts.user == host.facts.conditions[0].figures["user"]


def test_hosts_keep_their_order_by_name() -> None:
    names = [f"h{number}" for number in (3, 20, 1, 100)]
    fleet = redacted(Fleet(hosts=tuple(Host(name=name) for name in names)))
    assert sorted(range(4), key=lambda at: names[at]) == sorted(range(4), key=lambda at: fleet.hosts[at].name)


def test_it_says_so_and_reads_back() -> None:
    fleet = redacted(probed_fleet())
    assert fleet.notes[-1] == "names, addresses and users were replaced"
    assert parse(dumps(fleet).encode(), "snapshot.json") == fleet
    assert dump(redacted(replace(fleet, notes=())))["hosts"][0]["name"] == "host-1"
