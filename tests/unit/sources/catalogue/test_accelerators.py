"""The accelerator catalogue: what it holds, how a name finds its row, how `--gpu` is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.domain.fleet import Basis
from gpuplan.domain.hardware import Accelerator
from gpuplan.errors import UsageError
from gpuplan.sources.catalogue.accelerators import (
    MOST_GPUS,
    as_gpus,
    by_device_name,
    find,
    load,
    parse_gpu_option,
)
from gpuplan.sources.catalogue.names import near_misses
from gpuplan.units import GIB, MIB

# Total memory in GiB that vLLM, torch or the driver's runtime printed in public logs on Linux hosts.
OBSERVED_GIB = {
    "A100-40GB": 39.5,
    "A100-80GB": 79.25,
    "B200": 178.35,
    "B300": 267.69,
    "GB200": 184.31,
    "GB300": 276.5,
    "GH200-96GB": 95.0,
    "H100-80GB": 79.18,
    "H100-NVL": 93.02,
    "H20-96GB": 95.1,
    "H200": 139.8,
    "L4": 22.03,
    "L40S": 44.39,
    "MI300X": 191.98,
    "MI355X": 287.98,
    "RTX-3090": 23.58,
    "RTX-4090": 23.52,
    "RTX-5090": 31.36,
    "RTX-A5000": 23.54,
    "RTX-PRO-6000": 94.97,
    "RX-9070-XT": 15.92,
    "T4": 14.56,
    "GB10": 119.63,
    "910B3": 60.97,
}


def test_the_catalogue_covers_the_market() -> None:
    assert len(load()) >= 75
    assert {entry.backend for entry in load()} == {"cuda", "rocm", "cann"}


@pytest.mark.parametrize(("name", "gib"), OBSERVED_GIB.items())
def test_memory_is_what_the_runtime_reports(name: str, gib: float) -> None:
    assert find(name).memory_bytes / GIB == pytest.approx(gib, rel=0.002)


@pytest.mark.parametrize("entry", load(), ids=lambda entry: entry.name)
def test_every_row_is_complete(entry: Accelerator) -> None:
    assert entry.source
    assert "/" + "work" not in entry.source
    assert entry.device_names
    assert entry.memory_basis in (Basis.MEASURED, Basis.COMPUTED, Basis.ASSUMED)
    assert 4 * GIB < entry.memory_bytes < 300 * GIB
    assert (entry.compute_capability is not None) == (entry.backend == "cuda")
    assert entry.bandwidth_bytes_per_second is None or 50e9 < entry.bandwidth_bytes_per_second < 10e12
    assert entry.architecture
    if entry.reported_mib is not None:
        assert entry.memory_bytes <= entry.reported_mib * MIB


def test_names_and_device_names_find_their_row() -> None:
    for entry in load():
        assert find(entry.name) is entry
        for device_name in entry.device_names:
            assert by_device_name(device_name, entry.memory_bytes) is entry


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("H100", "H100-80GB"),
        ("nvidia_h100 80gb", "H100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("h200", "H200"),
        ("L40S", "L40S"),
        ("b200", "B200"),
        ("RTX PRO 6000", "RTX-PRO-6000"),
        ("rtx-pro-6000 blackwell", "RTX-PRO-6000"),
        ("GeForce RTX 4090", "RTX-4090"),
        ("4090", "RTX-4090"),
        ("A100 80G", "A100-80GB"),
        ("a100-80GiB", "A100-80GB"),
        ("H100 PCIe", "H100-PCIE"),
        ("AMD Instinct MI300X", "MI300X"),
        ("Ascend 910B3", "910B3"),
        ("Tesla T4", "T4"),
    ],
)
def test_short_forms(written: str, name: str) -> None:
    assert find(written).name == name


@pytest.mark.parametrize(
    ("written", "choices"),
    [
        ("A100", ["A100-40GB", "A100-80GB"]),
        ("V100", ["V100-16GB", "V100-32GB"]),
        ("GH200", ["GH200-96GB", "GH200-144GB"]),
        ("RTX 6000", ["RTX-6000-ADA", "RTX-PRO-6000"]),
        ("RTX 3080", ["RTX-3080-10GB", "RTX-3080-12GB"]),
        ("910B", ["910B1", "910B4"]),
    ],
)
def test_an_ambiguous_name_lists_the_choices(written: str, choices: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        find(written)
    for choice in choices:
        assert choice in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("written", "meant"),
    [("H10", "H100-80GB"), ("B20", "B200"), ("MI355", "MI355X"), ("RTX-4099", "RTX-4090")],
)
def test_an_unknown_name_gets_near_misses(written: str, meant: str) -> None:
    with pytest.raises(UsageError, match=meant) as caught:
        find(written)
    assert "gpuplan gpus" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "written", ["", "  ", "80GB", "hopper", "HBM3", "RTX 4080 Laptop", "x" * 10_000, "²"]
)
def test_what_names_no_accelerator_is_refused_briefly(written: str) -> None:
    with pytest.raises(UsageError) as caught:
        find(written)
    assert len(caught.value.message) < 300


def test_device_names_of_slices_and_modified_cards_are_not_guessed() -> None:
    assert by_device_name("NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None
    assert by_device_name("NVIDIA GeForce RTX 4090 Laptop GPU") is None
    assert by_device_name("NVIDIA GeForce RTX 4090", 48 * GIB) is None
    assert by_device_name("") is None


def test_memory_decides_between_sizes_of_one_device_name() -> None:
    assert by_device_name("NVIDIA GeForce RTX 3080") is None
    chosen = by_device_name("NVIDIA GeForce RTX 3080", 12288 * MIB)
    assert chosen is not None
    assert chosen.name == "RTX-3080-12GB"


@pytest.mark.parametrize(
    ("text", "count"), [("H100-80GB", 1), ("H100-80GB:2", 2), (f" h100 : {MOST_GPUS} ", MOST_GPUS)]
)
def test_the_gpu_option_names_and_counts(text: str, count: int) -> None:
    assert parse_gpu_option(text) == (find("H100-80GB"), count)


def test_free_hardware_has_the_memory_the_user_gave() -> None:
    custom, count = parse_gpu_option("custom=79.19GiB:2")
    assert (custom.name, count) == ("custom", 2)
    assert custom.memory_bytes == int(79.19 * GIB)
    assert custom.memory_basis is Basis.EXACT
    assert parse_gpu_option("custom=60GiB")[0].compute_capability is None


def test_a_size_overrides_the_memory_of_a_catalogue_name_only() -> None:
    known, (given_size, _) = find("H100-80GB"), parse_gpu_option("H100-80GB=60GiB")
    assert given_size.memory_bytes == 60 * GIB
    assert given_size.device_names == known.device_names
    assert given_size.bandwidth_bytes_per_second == known.bandwidth_bytes_per_second
    assert parse_gpu_option("A100=79GiB")[0].name == "A100-80GB"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no GPU"),
        ("=5GiB", "names no GPU"),
        ("L4:", "not a number"),
        ("L4:x", "not a number"),
        ("L4:-1", "not a number"),
        ("L4:²", "not a number"),
        ("L4:1.5", "not a number"),
        ("L4:0", "at least one"),
        ("L4:1000000000", "at most"),
        ("L4:" + "9" * 10_000, "at most"),
        ("custom=", "not a size"),
        ("custom=lots", "not a size"),
        ("custom=-5GiB", "not a size"),
        ("custom=0GiB", "without memory"),
        ("custom=24", "24 bytes"),
        ("custom=99999999999GiB", "larger than any memory"),
        ("c\x1b[31m=20GiB", "name"),
        ("c" * 65 + "=20GiB", "name"),
        ("H101", "no accelerator"),
    ],
)
def test_a_wrong_gpu_option_says_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        parse_gpu_option(text)
    assert caught.value.hint
    assert len(caught.value.message) < 300


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        accelerator, count = parse_gpu_option(text)
    except UsageError:
        return
    assert accelerator.memory_bytes > 0
    assert 1 <= count <= MOST_GPUS


def test_declared_devices_carry_the_name_the_engine_sees() -> None:
    gpus = as_gpus(find("A100-80GB"), 2, first_index=3)
    assert [gpu.index for gpu in gpus] == [3, 4]
    assert {gpu.name for gpu in gpus} == {"NVIDIA A100-SXM4-80GB"}
    assert all(gpu.free_bytes == gpu.total_bytes == find("A100-80GB").memory_bytes for gpu in gpus)


def test_near_misses_prefer_what_the_name_begins_and_keep_the_limit() -> None:
    candidates = ["RTX-4090", "RTX-4080", "RTX-4080-SUPER", "H100-80GB", "T4"]
    assert near_misses("rtx 4080", candidates)[:2] == ("RTX-4080", "RTX-4080-SUPER")
    assert near_misses("h100 80 gb", candidates) == ("H100-80GB",)
    assert len(near_misses("rtx", candidates, limit=2)) == 2
    assert near_misses("completely different", candidates) == ()
    assert near_misses("...", candidates) == ()


def test_near_misses_do_not_depend_on_the_order_of_candidates() -> None:
    names = [entry.name for entry in load()]
    assert near_misses("RTX 409", names) == near_misses("RTX 409", reversed(names))
