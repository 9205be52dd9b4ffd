"""Which fleet a command plans on, and what it says when there is none."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.fleet import Basis, Fleet, Host, HostStatus
from gpuplan.errors import ExitCode, InventoryError, NoHostError, UsageError
from gpuplan.operations.fleet import FleetOptions, declared, narrow, parse_label, read_fleet, require_usable
from gpuplan.sources import inventory_yaml, snapshot_json
from gpuplan.units import GIB

EXAMPLE = Path(__file__).parents[3] / "inventory.example.yaml"


def options(cwd: Path, **given: Any) -> FleetOptions:
    return FleetOptions(environ={}, cwd=cwd, **given)


def inventory(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    return path


def test_the_example_becomes_hosts_with_the_catalogue_facts(tmp_path: Path) -> None:
    fleet = read_fleet(options(tmp_path, inventory=EXAMPLE, no_probe=True))
    assert [len(host.gpus) for host in fleet.hosts] == [8, 8, 3]
    assert fleet.basis is Basis.ASSUMED
    assert any("declared" in note for note in fleet.notes)
    first = fleet.hosts[0]
    assert [gpu.index for gpu in first.gpus] == list(range(8))
    gpu = first.gpus[0]
    assert gpu.total_bytes == gpu.free_bytes
    assert gpu.total_bytes is not None
    assert 78 * GIB < gpu.total_bytes < 80 * GIB
    assert (gpu.vendor, gpu.backend, gpu.compute_capability) == ("nvidia", "cuda", "9.0")
    assert gpu.bandwidth_bytes_per_second
    assert gpu.reserved_bytes == GIB
    assert (first.ram_total_bytes, first.ram_reserved_bytes) == (2048 * GIB, 16 * GIB)
    assert first.link == "nvlink"
    lab = fleet.hosts[2]
    assert [gpu.excluded for gpu in lab.gpus] == [False, False, True]
    assert lab.gpus[0].compute_capability == lab.gpus[2].compute_capability == "8.9"
    assert lab.gpus[0].total_bytes != lab.gpus[2].total_bytes


def test_declared_memory_goes_before_the_catalogue(tmp_path: Path) -> None:
    path = inventory(
        tmp_path,
        "hosts: [{name: a, gpus: [{name: prototype, memory: 100GiB}, {name: H100-80GB, memory: 40GiB},"
        " {name: H100-80GB}, {name: AMD Instinct Next, memory: 300GiB}]}]",
    )
    (host,) = declared(inventory_yaml.load(path)).hosts
    prototype, slice_, whole, next_ = host.gpus
    assert (prototype.total_bytes, prototype.compute_capability, prototype.backend) == (
        100 * GIB,
        None,
        "cuda",
    )
    assert (slice_.total_bytes, slice_.compute_capability) == (40 * GIB, "9.0")
    assert slice_.bandwidth_bytes_per_second is None
    assert whole.total_bytes is not None
    assert whole.total_bytes > 78 * GIB
    assert (next_.vendor, next_.backend) == ("amd", "rocm")


def test_a_host_without_declared_gpus_is_kept_as_failed(tmp_path: Path) -> None:
    path = inventory(tmp_path, "hosts: [{name: a}, {name: b, gpus: {name: L4}}]")
    fleet = read_fleet(options(tmp_path, inventory=path))
    bare = fleet.hosts[0]
    assert bare.status is HostStatus.FAILED
    assert bare.failure is not None
    assert bare.failure.stage == "declare"
    assert "no gpus declared" in bare.failure.detail


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hosts: [{name: a}]", "a: failed (declare: no gpus declared"),
        (
            "hosts: [{name: a, gpus: {name: L4, count: 2}, exclude_gpus: [0, 1]}]",
            "a: exclude_gpus leaves out all 2",
        ),
        ("hosts: [" + ", ".join(f"{{name: h{n}}}" for n in range(50)) + "]", "and 45 more hosts"),
    ],
)
def test_no_usable_gpu_says_why(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(NoHostError) as caught:
        read_fleet(options(tmp_path, inventory=inventory(tmp_path, text)))
    assert reason in caught.value.message
    assert caught.value.exit_code is ExitCode.NO_HOST


def snapshot(tmp_path: Path, *hosts: object) -> Path:
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps({"schema_version": 1, "hosts": hosts}))
    return path


def card(index: int = 0, total: int | None = 24 * GIB) -> dict[str, object]:
    return {"index": index, "name": "NVIDIA L4", "memory": {"total_bytes": total}}


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ({"name": "a", "gpus": [card(total=None)]}, "a: the memory of its GPU is unknown"),
        ({"name": "a", "gpus": [card(total=0)]}, "a: the memory of its GPU is unknown"),
        ({"name": "a"}, "a: it has no GPU"),
        (
            {"name": "a", "status": "unreachable", "failure": {"stage": "connect", "detail": "timed out"}},
            "a: unreachable (connect: timed out)",
        ),
    ],
)
def test_a_snapshot_without_a_usable_gpu(tmp_path: Path, host: object, reason: str) -> None:
    with pytest.raises(NoHostError) as caught:
        read_fleet(options(tmp_path, snapshot=snapshot(tmp_path, host)))
    assert reason in caught.value.message


def test_an_empty_snapshot_has_no_host(tmp_path: Path) -> None:
    with pytest.raises(NoHostError, match="no hosts"):
        read_fleet(options(tmp_path, snapshot=snapshot(tmp_path)))


def test_a_snapshot_goes_before_the_inventory_that_was_found(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text("not: an inventory")
    fleet = read_fleet(options(tmp_path, snapshot=snapshot(tmp_path, {"name": "a", "gpus": [card()]})))
    assert fleet.basis is Basis.MEASURED


def test_an_inventory_given_with_a_snapshot_keeps_back_what_it_reserves(tmp_path: Path) -> None:
    seen = snapshot(tmp_path, {"name": "a", "gpus": [card(0), card(1)]}, {"name": "b", "gpus": [card()]})
    path = inventory(
        tmp_path, "hosts: [{name: a, reserve: {vram: 2GiB}, exclude_gpus: [1], labels: {zone: x}}]"
    )
    first, second = read_fleet(options(tmp_path, snapshot=seen, inventory=path)).hosts
    assert [gpu.reserved_bytes for gpu in first.gpus] == [2 * GIB, 2 * GIB]
    assert [gpu.excluded for gpu in first.gpus] == [False, True]
    assert first.labels == (("zone", "x"),)
    assert second.gpus[0].reserved_bytes == 0


def test_without_any_inventory_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoHostError, match="inventory") as caught:
        read_fleet(options(tmp_path))
    assert "gpuplan estimate" in str(caught.value.hint)


def test_a_missing_inventory_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="no such file") as caught:
        read_fleet(options(tmp_path, inventory=tmp_path / "absent.yaml"))
    assert caught.value.exit_code is ExitCode.USAGE


class TestNarrow:
    fleet = Fleet(
        hosts=(
            Host(name="h1", labels=(("tier", "prod"), ("zone", "a"))),
            Host(name="h2", labels=(("zone", "a"),)),
            Host(name="h3", labels=(("zone", "beta"),)),
        )
    )

    def names(self, **filters: Any) -> list[str]:
        return [host.name for host in narrow(self.fleet, **filters).hosts]

    def test_names_add_up_and_labels_all_hold(self) -> None:
        assert self.names() == ["h1", "h2", "h3"]
        assert self.names(hosts=("h3", "h1")) == ["h1", "h3"]
        assert self.names(labels=(("zone", "a"),)) == ["h1", "h2"]
        assert self.names(labels=(("zone", "a"), ("tier", "prod"))) == ["h1"]
        assert self.names(hosts=("h2", "h3"), labels=(("zone", "a"),)) == ["h2"]

    @pytest.mark.parametrize(
        ("filters", "near"),
        [
            ({"hosts": ("h11",)}, "'h1'"),
            ({"labels": (("zones", "a"),)}, "'zone'"),
            ({"labels": (("zone", "betta"),)}, "'beta'"),
        ],
    )
    def test_a_mistyped_filter_has_a_near_miss(self, filters: dict[str, object], near: str) -> None:
        with pytest.raises(UsageError) as caught:
            self.names(**filters)
        assert f"did you mean {near}" in caught.value.message
        assert caught.value.hint

    def test_filters_that_exclude_each_other_leave_no_host(self) -> None:
        with pytest.raises(NoHostError, match="--host h3 --label tier=prod"):
            self.names(hosts=("h3",), labels=(("tier", "prod"),))

    @pytest.mark.parametrize("text", ["zone", "=a", "zone=", "", "  = "])
    def test_a_label_is_k_equals_v(self, text: str) -> None:
        with pytest.raises(UsageError, match="is not K=V"):
            parse_label(text)

    def test_a_value_may_hold_an_equals_sign(self) -> None:
        assert parse_label("key=a=b") == ("key", "a=b")


def test_a_declared_fleet_survives_being_saved(tmp_path: Path) -> None:
    fleet = declared(inventory_yaml.load(EXAMPLE))
    path = tmp_path / "saved.json"
    path.write_text(snapshot_json.dumps(fleet))
    assert snapshot_json.load(path) == fleet
    require_usable(fleet)
