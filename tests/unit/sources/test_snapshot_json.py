"""A snapshot is read as it was written, by a probe or by hand, or refused with its place."""

import json
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpuplan.domain.fleet import Basis, Fleet, GpuProcess, HostFailure, HostStatus
from gpuplan.errors import InventoryError
from gpuplan.sources.snapshot_json import dump, dumps, load, parse, save, snapshot_schema
from tests.fleets import probed_fleet

SNAPSHOTS = Path(__file__).parents[2] / "data" / "snapshots"
GPU = {"index": 0, "name": "NVIDIA L4", "memory": {"total_bytes": 1000}}


def read(document: object) -> Fleet:
    return parse(json.dumps(document).encode(), "snapshot.json")


def fleet_of(*gpus: object, **host: object) -> dict[str, Any]:
    return {"schema_version": 1, "hosts": [{"name": "h1", "gpus": list(gpus), **host}]}


def refusal(document: object) -> str:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(InventoryError) as caught:
        parse(content, "snapshot.json")
    assert caught.value.hint
    assert caught.value.message.startswith("snapshot.json")
    return caught.value.message


def test_what_a_probe_writes() -> None:
    fleet = load(SNAPSHOTS / "as_specified.json")
    assert (fleet.taken_at, fleet.basis, fleet.notes) == ("2026-11-21T02:00:00Z", Basis.MEASURED, ())
    first, second = fleet.hosts
    assert (first.address, first.labels) == ("10.0.0.1", (("zone", "a"),))
    assert (first.ram_total_bytes, first.ram_available_bytes) == (1099511627776, 1000000000000)
    busy, idle = first.gpus
    assert (busy.index, busy.free_bytes) == (0, 74783391744)
    assert busy.processes == (
        GpuProcess(pid=1, name="python", used_bytes=10737418240, container="c1", user="u"),
    )
    assert (idle.index, idle.free_bytes) == (1, 85520809984)
    assert (idle.vendor, idle.backend, idle.compute_capability) == ("nvidia", "cuda", "9.0")
    assert idle.bandwidth_bytes_per_second
    assert second.status is HostStatus.UNREACHABLE
    assert second.failure == HostFailure(stage="connect", detail="timed out after 5 s")


def test_what_a_hand_writes() -> None:
    fleet = load(SNAPSHOTS / "by_hand.json")
    card, slice_, unknown, other = fleet.hosts[0].gpus
    assert (card.free_bytes, card.compute_capability, card.vendor) == (47708110848, "8.9", "nvidia")
    assert slice_.bandwidth_bytes_per_second is None
    assert (unknown.total_bytes, unknown.free_bytes) == (None, None)
    assert (other.vendor, other.backend, other.compute_capability) == ("amd", "rocm", None)


def test_used_memory_stands_in_for_free_memory() -> None:
    (gpu,) = read(fleet_of({**GPU, "memory": {"total_bytes": 1000, "used_bytes": 300}})).hosts[0].gpus
    assert gpu.free_bytes == 700


def test_what_is_written_goes_before_the_catalogue() -> None:
    given = {
        **GPU,
        "vendor": "amd",
        "compute_capability": "12.3",
        "bandwidth_bytes_per_second": 7,
        "unified": True,
    }
    (gpu,) = read(fleet_of(given)).hosts[0].gpus
    assert (gpu.vendor, gpu.backend, gpu.compute_capability) == ("amd", "rocm", "12.3")
    assert (gpu.bandwidth_bytes_per_second, gpu.unified) == (7, True)
    (gpu,) = read(fleet_of({**GPU, "name": "unheard of", "backend": "cann"})).hosts[0].gpus
    assert (gpu.vendor, gpu.backend) == ("ascend", "cann")


def test_keys_of_a_later_release_do_no_harm() -> None:
    assert read(fleet_of({**GPU, "temperature": 40}, kernel="6.1")).hosts[0].gpus[0].total_bytes == 1000


def test_a_failed_host_without_a_reason_is_kept() -> None:
    (host,) = read({"schema_version": 1, "hosts": [{"name": "a", "status": "failed"}]}).hosts
    assert host.failure is not None
    assert host.failure.detail == "the snapshot does not say why"


def with_memory(**memory: object) -> dict[str, Any]:
    return fleet_of({**GPU, "memory": {"total_bytes": 1000, **memory}})


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        (b"", "snapshot.json: is empty"),
        (b"  \n", "snapshot.json: is empty"),
        (
            b'{"schema_version": 1,\n "hosts": [{"name"',
            "snapshot.json:2:18: ends in the middle: the file is truncated",
        ),
        (b'{"schema_version": 1,\n "hosts": nope}', "snapshot.json:2:"),
        (b"hosts: []", "snapshot.json:1:1: is not JSON"),
        (b'{"a": "\xff"}', "snapshot.json:1: is not UTF-8 text"),
        (b"[" * 100_000, "snapshot.json:1:"),
        (b'{"schema_version": 1, "hosts": [' + b'{"a":' * 100_000, "snapshot.json:1:"),
        (b'{"schema_version": ' + b"9" * 10_000 + b', "hosts": []}', "snapshot.json"),
        ([], 'snapshot.json: must be an object with "schema_version": 1 and "hosts"'),
        ("text", "must be an object"),
        (None, "must be an object"),
        ({"hosts": []}, "snapshot.json: schema_version: this key is required and must be 1"),
        ({"schema_version": "1", "hosts": []}, "schema_version: this key is required and must be 1"),
        ({"schema_version": 0, "hosts": []}, "schema_version: this key is required and must be 1"),
        ({"schema_version": 2, "hosts": []}, "schema_version 2 was written by a newer gpuplan"),
        ({"schema_version": 1}, "snapshot.json: hosts: this key is required"),
        ({"schema_version": 1, "hosts": {}}, "hosts: must be a list"),
        ({"schema_version": 1, "hosts": [3]}, "hosts[0]: must be a mapping"),
        ({"schema_version": 1, "hosts": [{}]}, "hosts[0].name: this key is required"),
        ({"schema_version": 1, "hosts": [{"name": ""}]}, "hosts[0].name: '': must not be blank"),
        (
            {"schema_version": 1, "hosts": [{"name": "a\u001b[2J"}]},
            "hosts[0].name: 'a?[2J': must not be blank",
        ),
        (
            {"schema_version": 1, "hosts": [{"name": "a"}, {"name": "A"}]},
            "hosts[1].name: 'A' is already the name",
        ),
        (fleet_of({"index": 0, "name": "x"}), "hosts[0].gpus[0].memory: this key is required"),
        (
            fleet_of({"index": 0, "name": "x", "memory": {}}),
            "hosts[0].gpus[0].memory.total_bytes: this key is required",
        ),
        (
            fleet_of({"name": "x", "memory": {"total_bytes": 1}}),
            "hosts[0].gpus[0].index: this key is required",
        ),
        (fleet_of({**GPU, "index": -1}), "hosts[0].gpus[0].index: must be at least 0"),
        (fleet_of({**GPU, "index": True}), "hosts[0].gpus[0].index: must be a whole number"),
        (fleet_of(GPU, GPU), "hosts[0].gpus: the index 0 is given twice"),
        (
            fleet_of({**GPU, "uuid": "U"}, {**GPU, "index": 1, "uuid": "U"}),
            "hosts[0].gpus: the uuid U is given twice",
        ),
        (with_memory(total_bytes=-1), "memory.total_bytes: must be at least 0"),
        (with_memory(total_bytes="80GiB"), "memory.total_bytes: must be a whole number"),
        (with_memory(total_bytes=1.5), "memory.total_bytes: must be a whole number"),
        (with_memory(total_bytes=2**70), "memory.total_bytes: must be"),
        (
            with_memory(free_bytes=1001),
            "hosts[0].gpus[0].memory.free_bytes: 1001 is more than total_bytes, 1000",
        ),
        (
            with_memory(used_bytes=1001),
            "hosts[0].gpus[0].memory.used_bytes: 1001 is more than total_bytes, 1000",
        ),
        (with_memory(freebytes=1), "memory.freebytes: unknown key; did you mean 'free_bytes'?"),
        (fleet_of({**GPU, "compute_capabilty": "9.0"}), "unknown key; did you mean 'compute_capability'?"),
        (fleet_of(GPU, state="x", statos="failed"), "hosts[0].statos: unknown key; did you mean 'status'?"),
        (fleet_of(status="down"), "hosts[0].status: must be 'ok', 'unreachable' or 'failed'"),
        (fleet_of(failure={"stage": "s", "detail": "d"}), "hosts[0].failure: a host with a failure needs"),
        (
            fleet_of(memory={"total_bytes": 1, "available_bytes": 2}),
            "memory.available_bytes: 2 is more than total_bytes",
        ),
        (fleet_of(labels={"a": 1}), "hosts[0].labels: the label 'a' must be a text"),
    ],
)
def test_a_fault_names_its_place(document: object, fault: str) -> None:
    assert fault in refusal(document)


def test_not_a_number_is_not_a_size() -> None:
    content = json.dumps(with_memory(total_bytes=float("nan"))).encode()
    assert "total_bytes: must be a" in refusal(content)


def test_many_faults_are_counted() -> None:
    lines = refusal(
        fleet_of(*({**GPU, "memory": {"total_bytes": 1, "free_bytes": 2}} for _ in range(20)))
    ).splitlines()
    assert len(lines) == 11
    assert lines[-1] == "snapshot.json: and 11 more"


def test_a_byte_order_mark_does_no_harm() -> None:
    assert parse(b"\xef\xbb\xbf" + json.dumps(fleet_of(GPU)).encode(), "s").hosts[0].name == "h1"


def test_a_missing_file_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="no such file") as caught:
        load(tmp_path / "absent.json")
    assert "gpuplan schema snapshot" in str(caught.value.hint)


def test_what_is_dumped_reads_back_the_same() -> None:
    for path in SNAPSHOTS.glob("*.json"):
        fleet = load(path)
        again = parse(dumps(fleet).encode(), "again")
        assert again == fleet
        assert dump(again) == dump(fleet)


@pytest.mark.parametrize("entry", ["1", "{}", '{"name": "a"}', '{"name": "a", "gpus": [1, 1]}'])
def test_a_hostile_file_is_refused_in_bounded_time(entry: str) -> None:
    started = time.process_time()
    content = f'{{"schema_version": 1, "hosts": [{",".join([entry] * 20_000)}]}}'
    assert len(refusal(content.encode())) < 5000
    assert time.process_time() - started < 10


def test_a_large_fleet_is_quick() -> None:
    host = json.dumps({"name": "@", "gpus": [{**GPU, "index": index} for index in range(8)]})
    hosts = ",".join(host.replace("@", f"h{number}") for number in range(5_000))
    content = f'{{"schema_version": 1, "hosts": [{hosts}]}}'.encode()
    started = time.process_time()
    assert len(parse(content, "snapshot.json").hosts) == 5_000
    assert time.process_time() - started < 5


def test_the_schema_requires_what_a_hand_must_write() -> None:
    schema = snapshot_schema()
    assert schema["required"] == ["schema_version", "hosts"]
    assert schema["$defs"]["GpuKeys"]["required"] == ["index", "name", "memory"]
    assert schema["$defs"]["HostKeys"]["required"] == ["name"]
    assert schema["properties"]["schema_version"]["const"] == 1


def test_every_fact_of_a_probe_reads_back() -> None:
    fleet = probed_fleet()
    facts = fleet.hosts[0].facts
    unset = [field.name for field in fields(facts) if getattr(facts, field.name) == field.default]
    assert unset == [], "a fact the fleet of this test lacks would not be tested"
    assert parse(dumps(fleet).encode(), "snapshot.json") == fleet


def test_the_keys_the_interface_names_are_where_it_says() -> None:
    host = dump(probed_fleet())["hosts"][0]
    assert host["docker"]["version"] == "29.0.1"
    assert host["interfaces"][0]["name"] == "eth0"
    assert host["deployments"][0]["deployment"] == "secret-project"
    assert "docker" not in host["facts"]
    jsonschema.validate(dump(probed_fleet()), snapshot_schema())


def test_a_flood_of_wrong_facts_is_refused_at_once() -> None:
    flood = {"schema_version": 1, "hosts": [{"name": "h1", "facts": {"disks": [1] * 200_000}}]}
    assert "holds a list of 200000 entries" in refusal(flood)


def test_secrets_of_an_older_snapshot_are_not_shown() -> None:
    process = {"pid": 1, "name": "serve --api-key=correct-horse"}
    fleet = read(fleet_of({**GPU, "processes": [process]}))
    assert fleet.hosts[0].gpus[0].processes == (GpuProcess(pid=1, name="serve --api-key=***"),)


@pytest.mark.parametrize(
    ("subject", "figures", "place"),
    [
        ({"gpu": [1]}, {}, "subject.gpu"),
        ({"host": 7}, {}, "subject.host"),
        ({}, {"count": "x"}, "figures.count"),
        ({}, {"total_bytes": {}}, "figures.total_bytes"),
    ],
)
def test_a_condition_that_cannot_be_worded_is_refused(
    subject: dict[str, object], figures: dict[str, object], place: str
) -> None:
    condition = {"code": "GP611", "severity": "error", "subject": subject, "figures": figures}
    assert place in refusal(fleet_of(GPU, facts={"conditions": [condition]}))


def test_a_link_to_a_snapshot_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "latest.json"
    link.symlink_to(tmp_path / "real.json")
    save(probed_fleet(), link)
    assert link.is_symlink()
    assert load(tmp_path / "real.json") == load(link)


def test_a_snapshot_printed_on_a_terminal_is_harmless() -> None:
    telling = "python \x9b31m \u202eexe"
    fleet = read(fleet_of({**GPU, "processes": [{"pid": 1, "name": telling}]}))
    assert dumps(fleet).replace("\n", "").isprintable()
    assert parse(dumps(fleet).encode(), "snapshot.json") == fleet


def test_true_is_no_version() -> None:
    assert "schema_version: this key is required and must be 1" in refusal(
        {"schema_version": True, "hosts": []}
    )
