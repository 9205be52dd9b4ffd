"""Whatever an inventory or a snapshot holds, it is read or refused: no other exception, no secret shown."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuplan.domain.fleet import Basis, Fleet, Gpu, GpuProcess, Host, HostFailure, HostStatus
from gpuplan.errors import GpuplanError, InventoryError
from gpuplan.operations.fleet import declared, require_usable
from gpuplan.sources import inventory_yaml, snapshot_json

QUICK = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["h1", "10.0.0.1", "local", "H100-80GB", "80GiB", "41000-41999", "-1", "1e400", "\u2028", "9" * 40]
    ),
)
INVENTORY_KEYS = st.sampled_from(
    [
        "hosts",
        "defaults",
        "vllm",
        "name",
        "address",
        "port",
        "gpus",
        "count",
        "memory",
        "labels",
        "reserve",
        "vram",
        "exclude_gpus",
        "env",
        "ray_ports",
        "service_ports",
        "shm_size",
        "jump",
        "ram",
        "lables",
        "<<",
    ]
)
SNAPSHOT_KEYS = st.sampled_from(
    [
        "schema_version",
        "hosts",
        "name",
        "gpus",
        "index",
        "memory",
        "total_bytes",
        "free_bytes",
        "status",
        "failure",
        "labels",
        "processes",
        "pid",
        "uuid",
        "taken_at",
        "notes",
        "freebytes",
    ]
)


def trees(keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(keys | st.text(max_size=4), inner, max_size=5)
        ),
        max_leaves=25,
    )


def mappings(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings of the right shape, of which any value may be anything."""
    return st.fixed_dictionaries({}, optional={key: value | scalars for key, value in keys.items()})


devices = mappings(
    name=st.sampled_from(["L4", "H100", "?"]), count=st.integers(-1, 9), memory=st.just("8GiB")
)
inventories = mappings(
    hosts=st.lists(
        mappings(
            name=st.sampled_from(["a", "b", "c"]),
            address=st.sampled_from(["x", "y", "local"]),
            port=st.integers(-1, 70_000),
            gpus=devices | st.lists(devices, max_size=3),
            exclude_gpus=st.lists(st.integers(-1, 9), max_size=3),
            labels=st.dictionaries(st.text(max_size=3), scalars, max_size=2),
            reserve=mappings(vram=st.just("1GiB"), ram=scalars),
        ),
        max_size=4,
    ),
    vllm=mappings(
        env=st.dictionaries(st.text(max_size=3), scalars, max_size=3), ray_ports=st.text(max_size=12)
    ),
)
sizes = st.integers(-1, 1000)
snapshots = st.fixed_dictionaries(
    {
        "schema_version": st.just(1),
        "hosts": st.lists(
            mappings(
                name=st.sampled_from(["a", "b", "c"]),
                status=st.sampled_from(["ok", "failed", "down"]),
                failure=mappings(stage=st.text(max_size=3), detail=st.text(max_size=3)),
                gpus=st.lists(
                    mappings(
                        index=st.integers(-1, 3),
                        name=st.sampled_from(["NVIDIA L4", "?"]),
                        memory=mappings(total_bytes=sizes, free_bytes=sizes, used_bytes=sizes),
                    ),
                    max_size=3,
                ),
            ),
            max_size=3,
        ),
    }
)


def inventory_fault(tmp_path: Any, content: bytes) -> GpuplanError | None:
    path = tmp_path / "inventory.yaml"
    path.write_bytes(content)
    try:
        require_usable(declared(inventory_yaml.load(path)))
    except GpuplanError as error:
        return error
    return None


def read_inventory(tmp_path: Any, content: bytes) -> None:
    fault = inventory_fault(tmp_path, content)
    assert fault is None or (fault.message.encode() and fault.hint)


def snapshot_or_fault(content: bytes) -> Fleet | GpuplanError:
    try:
        return snapshot_json.parse(content, "snapshot.json")
    except GpuplanError as error:
        return error


def read_snapshot(content: bytes) -> None:
    found = snapshot_or_fault(content)
    if isinstance(found, GpuplanError):
        assert found.message.encode()
    else:
        assert snapshot_json.parse(snapshot_json.dumps(found).encode(), "again") == found


@QUICK
@given(document=trees(INVENTORY_KEYS) | inventories)
def test_any_yaml_is_read_or_refused(tmp_path: Any, document: Any) -> None:
    read_inventory(tmp_path, yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass"))


@QUICK
@given(
    content=st.binary(max_size=200)
    | st.text(alphabet="&*!?|>-:{}[]<,#%@ \n\tab\"'0~", max_size=60).map(str.encode)
)
def test_any_bytes_are_read_or_refused(tmp_path: Any, content: bytes) -> None:
    read_inventory(tmp_path, content)
    read_snapshot(content)


@QUICK
@given(document=trees(SNAPSHOT_KEYS) | snapshots)
def test_any_json_is_read_or_refused(document: Any) -> None:
    read_snapshot(json.dumps(document).encode())


@QUICK
@given(
    secret=scalars | st.lists(st.just("s3cr3t")) | st.dictionaries(st.just("s3cr3t"), scalars), wrong=scalars
)
def test_a_value_of_env_is_never_in_a_fault(tmp_path: Any, secret: Any, wrong: Any) -> None:
    path = tmp_path / "inventory.yaml"
    content = {
        "hosts": [{"name": "a", "port": -1}],
        "vllm": {"env": {"TOKEN": "s3cr3t", "OTHER": secret, "B": wrong}},
    }
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InventoryError) as caught:
        inventory_yaml.load(path)
    assert "s3cr3t" not in f"{caught.value.message}{caught.value.hint}"


words = st.text("abcXYZ019-_. é", min_size=1, max_size=12).filter(str.strip)
texts = st.text(max_size=12).filter(lambda text: text.isprintable())
amounts = st.integers(0, 2**60)


@st.composite
def gpus(draw: st.DrawFn, index: int) -> Gpu:
    total = draw(st.none() | st.integers(1, 2**50))
    return Gpu(
        index=index,
        name=draw(words),
        uuid=draw(st.none() | st.just(f"GPU-{index}")),
        vendor=draw(st.sampled_from(["nvidia", "amd", "ascend", "other"])),
        backend=draw(st.sampled_from(["cuda", "rocm", "cann", "other"])),
        compute_capability=draw(st.sampled_from([None, "9.0"])),
        total_bytes=total,
        free_bytes=None if total is None else draw(st.integers(0, total)),
        bandwidth_bytes_per_second=draw(st.none() | st.integers(1, 2**50)),
        processes=tuple(draw(st.lists(processes, max_size=2))),
        unified=draw(st.booleans()),
        reserved_bytes=draw(amounts),
        excluded=draw(st.booleans()),
    )


processes = st.builds(
    GpuProcess,
    pid=st.integers(0, 2**22),
    name=texts,
    used_bytes=st.none() | amounts,
    container=st.none() | words,
    user=st.none() | words,
)


@st.composite
def hosts(draw: st.DrawFn, name: str) -> Host:
    status = draw(st.sampled_from(HostStatus))
    total = draw(st.none() | amounts)
    return Host(
        name=name,
        address=draw(st.none() | words),
        status=status,
        failure=None if status is HostStatus.OK else HostFailure(stage=draw(words), detail=draw(texts)),
        labels=tuple(sorted(draw(st.dictionaries(words, texts, max_size=3)).items())),
        gpus=tuple(draw(gpus(index)) for index in sorted(draw(st.sets(st.integers(0, 20), max_size=4)))),
        ram_total_bytes=total,
        ram_available_bytes=None if total is None else draw(st.integers(0, total)),
        ram_reserved_bytes=draw(amounts),
        link=draw(st.sampled_from([None, "nvlink", "pcie"])),
    )


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    return Fleet(
        hosts=tuple(draw(hosts(f"h{number}")) for number in range(draw(st.integers(0, 3)))),
        taken_at=draw(st.sampled_from([None, "2026-11-21T02:00:00Z"])),
        basis=draw(st.sampled_from([Basis.MEASURED, Basis.ASSUMED])),
        notes=tuple(draw(st.lists(texts, max_size=2, unique=True))),
    )


@QUICK
@given(fleet=fleets())
def test_a_fleet_that_was_written_reads_back_the_same(fleet: Fleet) -> None:
    once = snapshot_json.parse(snapshot_json.dumps(fleet).encode(), "once")
    again = snapshot_json.parse(snapshot_json.dumps(once).encode(), "again")
    assert again == once
    assert [known(host) for host in once.hosts] == [known(host) for host in fleet.hosts]
    assert (once.taken_at, once.basis, once.notes) == (fleet.taken_at, fleet.basis, fleet.notes)


def known(host: Host) -> tuple[object, ...]:
    """What reading must not change; facts the catalogue may fill in are left out where they were unknown."""
    devices = [
        (
            *(gpu.index, gpu.name, gpu.uuid, gpu.vendor, gpu.backend, gpu.total_bytes, gpu.free_bytes),
            *(gpu.processes, gpu.unified, gpu.reserved_bytes, gpu.excluded),
        )
        for gpu in host.gpus
    ]
    memory = (host.ram_total_bytes, host.ram_available_bytes, host.ram_reserved_bytes)
    return host.name, host.address, host.status, host.failure, host.labels, devices, memory
