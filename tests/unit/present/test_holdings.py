"""Who holds a GPU's memory: the same words in refusals, under the bars and in JSON."""

from dataclasses import replace

import jsonschema
import pytest

from gpuplan.cli.schema import schema_of
from gpuplan.domain.fleet import Basis, GpuProcess, Host
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.domain.plan import Holding, Owner
from gpuplan.present.document import Role, text_of, width_of
from gpuplan.present.holdings import owner, sentence, size, way_out
from gpuplan.present.plan_document import plain, plan_document
from gpuplan.present.plan_text import plan_text
from gpuplan.units import GIB
from tests.fleets import host, planned

MODEL = "Qwen__Qwen3-4B"
PYTHON = Holding(
    owner=Owner.PROCESS, bytes=int(60.1 * GIB), name="python", user="alice", pid=4242, container="foo"
)
OURS = Holding(
    owner=Owner.OURS, bytes=40 * GIB, name="qwen", container="gpuplan-qwen-0", basis=Basis.COMPUTED
)


@pytest.mark.parametrize(
    ("holding", "named", "much"),
    [
        (PYTHON, "python of alice, pid 4242, container foo", "60.10 GiB"),
        (Holding(owner=Owner.PROCESS, bytes=None, pid=7), "a process, pid 7", "an unknown part"),
        (OURS, "deployment qwen (container gpuplan-qwen-0)", "40.00 GiB predicted"),
        (Holding(owner=Owner.UNKNOWN, bytes=GIB), "an unknown owner", "1.00 GiB"),
        (Holding(owner=Owner.HOST, bytes=GIB), "the host's own programs", "1.00 GiB"),
        (Holding(owner=Owner.RESERVE, bytes=GIB, basis=Basis.EXACT), "the inventory's reserve", "1.00 GiB"),
    ],
)
def test_an_owner_has_one_name(holding: Holding, named: str, much: str) -> None:
    assert (owner(holding), size(holding)) == (named, much)


def test_the_most_comes_first_and_the_rest_is_counted() -> None:
    many = [replace(PYTHON, bytes=number * GIB, pid=number) for number in (1, 5, 3, 2, 4)]
    said = sentence(many)
    assert said.startswith("5.00 GiB by python of alice, pid 5")
    assert said.endswith("; and 2 more")


@pytest.mark.parametrize(
    ("holding", "way"),
    [
        (PYTHON, "ask its owner"),
        (OURS, "gpuplan stop qwen"),
        (Holding(owner=Owner.RESERVE, bytes=GIB), "lower reserve.vram"),
        (Holding(owner=Owner.UNKNOWN, bytes=GIB), "free 2.00 GiB on h1 GPU 0"),
    ],
)
def test_the_way_out_asks_and_never_ends_anything(holding: Holding, way: str) -> None:
    said = way_out([holding], "h1 GPU 0", "2.00 GiB")
    assert way in said
    assert "kill" not in said


def shared() -> Host:
    """A card with one deployment of ours, alice's program, and a reserve."""
    made = host("h1", "H100", 2, free={0: 60.0, 1: 60.0})
    processes = (
        GpuProcess(pid=4242, name="python", used_bytes=9 * GIB, user="alice"),
        GpuProcess(pid=12, name="vllm", used_bytes=4 * GIB, container="gpuplan-qwen-0"),
    )
    ours = OurContainer(
        id="1" * 64,
        name="gpuplan-qwen-0",
        deployment="qwen",
        state="running",
        gpus=("GPU-0",),
        claims=(("GPU-0", 8 * GIB),),
    )
    first = replace(made.gpus[0], uuid="GPU-0", processes=processes, reserved_bytes=GIB)
    return replace(made, gpus=(first, made.gpus[1]), facts=HostFacts(docker=Docker(containers=(ours,))))


def test_every_gpu_of_the_placement_tells_who_holds_it() -> None:
    made = planned(MODEL, shared(), arguments="--tensor-parallel-size 2 --gpu-memory-utilization 0.6")
    lines = plan_text(made, 80)
    text = text_of(lines)
    assert "    h1:0  8.00 GiB predicted by deployment qwen (container gpuplan-qwen-0)" in text
    assert "    h1:0  9.00 GiB by python of alice, pid 4242" in text
    assert "    h1:0  1.00 GiB by the inventory's reserve" in text
    assert "    h1:1  19.19 GiB by an unknown owner" in text
    assert "▞ held by others or kept back" in text
    assert any(span.role is Role.HELD and set(span.text) == {"▞"} for line in lines for span in line)
    assert all(width_of(row) <= 80 for row in text.splitlines())


def test_bars_keep_their_length() -> None:
    beside = planned(MODEL, shared(), arguments="--tensor-parallel-size 2 --gpu-memory-utilization 0.6")
    alone = planned(
        MODEL, host("h1", "H100", 2), arguments="--tensor-parallel-size 2 --gpu-memory-utilization 0.6"
    )

    def bars(width: int) -> list[int]:
        return [
            sum(row.count(glyph) for glyph in "█▓▒░·▞")
            for made in (beside, alone)
            for row in text_of(plan_text(made, width)).splitlines()
            if row.startswith(("  h1:0 █", "  h1:1 █"))
        ]

    for width in (80, 120):
        assert len(set(bars(width))) == 1
        assert len(bars(width)) == 4


def test_json_has_every_owner_and_the_bytes_add_up() -> None:
    made = planned(MODEL, shared(), arguments="--tensor-parallel-size 2 --gpu-memory-utilization 0.6")
    document = plain(plan_document(made))
    jsonschema.validate(document, schema_of("plan"))
    candidate = document["strategies"][2]["candidates"][0]
    first, second = candidate["placement"][0]["gpus"]
    assert [one["owner"] for one in first["held"]] == ["ours", "process", "unknown", "reserve"]
    assert [one["owner"] for one in second["held"]] == ["unknown"]
    for card, memory in zip((first, second), candidate["memory"]["per_gpu"], strict=True):
        held = sum(one["bytes"] for one in card["held"])
        assert held == memory["held_bytes"] == card["total_bytes"] - card["allocatable_bytes"]


def test_what_the_driver_keeps_for_itself_is_no_news() -> None:
    made = planned(MODEL, host("h1", "H100", 1, free={0: 78.9}))
    assert "held" not in text_of(plan_text(made, 80))
