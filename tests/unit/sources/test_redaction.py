"""A redacted snapshot names nobody and still plans as the real one."""

import time
from dataclasses import replace

import pytest

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet, Host, HostFailure, HostStatus
from gpuplan.domain.host_facts import Disk, Docker, HostFacts, Image, OurContainer
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


def leaking(*details: str, names: tuple[str, ...] = ("a", "db", "h1", "the-box")) -> Fleet:
    """Hosts that all failed, with these words."""
    failed = (HostFailure(stage="jump", detail=detail) for detail in details)
    hosts = (Host(name=name, status=HostStatus.FAILED) for name in names)
    return Fleet(
        hosts=(
            *hosts,
            *(
                Host(name=f"lost{n}", status=HostStatus.FAILED, failure=failure)
                for n, failure in enumerate(failed)
            ),
        )
    )


@pytest.mark.parametrize(
    ("detail", "leak"),
    [
        ("jump host a (connect): no route to the host", "host a "),
        ("is the machine that a is: it is planned on as a", "that a "),
        ("jump host db could not reach it", "db"),
        ("h1 says no", "h1"),
        ("could not reach 10.9.8.71:22: refused", "10.9.8"),
        ("tcp:10.9.8.7:22", "10.9.8"),
        ("at 10.9.8.7.", "10.9.8"),
        ("[2001:db8::17]:22 is silent", "db8"),
        ("jump host x could not reach 2001:db8::17:22: y", "db8"),
        ("fe80::5%eth0", "fe80"),
        ("::ffff:10.9.8.7", "10.9.8"),
        ("port aa:bb:cc:0d:ee:ff.", "bb:cc"),
        ("jump host root@bastion.acme.internal (resolve)", "acme"),
        ("https://registry.acme.io/v2/: 401", "acme"),
        ("/home/bob/.ssh/id is unreadable; ask bob", "bob"),
        ("carl@the-box: denied", "carl"),
    ],
)
def test_a_failure_gives_nobody_away(detail: str, leak: str) -> None:
    fleet = redacted(leaking(detail))
    failure = fleet.hosts[-1].failure
    assert leak in detail
    assert failure is not None
    assert leak not in failure.detail


@pytest.mark.parametrize(
    "detail",
    [
        "no socket at /var/run/docker.sock",
        "libnvidia-ml.so.1: cannot open shared object file",
        "a key of 4096 bits at 12:34:56 on 0000:17:00.0, docker.service and VLLM::Worker",
    ],
)
def test_what_names_nobody_stays(detail: str) -> None:
    failure = redacted(leaking(detail)).hosts[-1].failure
    assert failure is not None
    assert failure.detail == detail


def test_what_one_text_gives_away_is_hidden_in_all() -> None:
    fleet = redacted(leaking("ask bob", "/home/bob/.ssh/id is unreadable"))
    assert "bob" not in dumps(fleet)


def test_images_containers_groups_servers_and_plain_facts() -> None:
    facts = HostFacts(
        architecture="x86_64",
        disks=(Disk(purpose="model_dir", path="/m", total_bytes=1, free_bytes=1, device="filer:/vol"),),
        docker=Docker(
            version="29.0",
            images=(
                Image(
                    id="sha256:1",
                    tags=(
                        "ghcr.io/acme/x:1",
                        "acme/llm:2",
                        "reg.acme.io:5000/team/v:3",
                        "mydocker.io/acme/v:4",
                        "quay.io/ascend/vllm-ascend:5",
                    ),
                ),
            ),
            containers=(OurContainer(name="acme-prod", deployment="d"),),
        ),
        conditions=(
            Fact(
                code="GP622",
                severity=Severity.ERROR,
                subject={},
                figures={"groups": ["acme-ml", "docker"], "path": "/run/docker.sock"},
            ),
        ),
    )
    host = Host(name="h1", labels=(("arch", "x86_64"), ("v", "29.0")), facts=facts)
    fleet = redacted(Fleet(hosts=(host,)))
    text = dumps(fleet)
    assert [word for word in ("acme", "filer", "team") if word in text] == []
    assert "quay.io/ascend/vllm-ascend:5" in text
    assert fleet.hosts[0].facts.architecture == "x86_64", "a label of the same word changes no fact"
    assert fleet.hosts[0].facts.docker is not None
    assert fleet.hosts[0].facts.docker.version == "29.0"
    assert fleet.hosts[0].facts.conditions[0].figures == {
        "groups": ["group-1", "docker"],
        "path": "/run/docker.sock",
    }


def test_a_large_fleet_is_redacted_in_time() -> None:
    details = (f"jump host x could not reach 10.1.{n // 250}.{n % 250}:22" for n in range(1000))
    start = time.perf_counter()
    redacted(leaking(*details, names=tuple(f"node-{n}" for n in range(1000))))
    assert time.perf_counter() - start < 10
