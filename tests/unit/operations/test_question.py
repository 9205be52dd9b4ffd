"""Questions asked again: what is read once, and what a remedy's change makes of a question."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Plan, Remedy, StrategyName, StrategyResult, Verdict
from gpuplan.domain.repository import Repository
from gpuplan.domain.workload import NO_ARGUMENTS, EngineArguments
from gpuplan.errors import ModelError
from gpuplan.operations.fleet import FleetOptions, see_fleet
from gpuplan.operations.models import open_repository
from gpuplan.operations.plan import Asked, ServingOptions
from gpuplan.operations.question import Planner, changed, without_flags
from gpuplan.present.remedies import KINDS
from gpuplan.units import GIB

ROOT = Path(__file__).parents[3]
QWEN = "Qwen/Qwen3-32B"


def declared() -> Fleet:
    path = ROOT / "inventory.example.yaml"
    return see_fleet(FleetOptions(environ=os.environ, cwd=ROOT, inventory=path, no_probe=True))


def small(count: int = 2, *, free: int | None = None) -> Fleet:
    """The lab host alone, with as many of its L40S."""
    fleet = declared()
    lab = next(host for host in fleet.hosts if host.name == "lab")
    gpus = tuple(replace(gpu, free_bytes=free or gpu.free_bytes) for gpu in lab.gpus[:count])
    return replace(fleet, hosts=(replace(lab, gpus=gpus),))


class Reader:
    """Opens repositories and counts."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.broken = False

    def __call__(self, reference: str, engine: EngineArguments) -> Repository:
        self.opened.append(reference)
        if self.broken:
            raise ModelError(f"{reference}: not there", hint="look elsewhere")
        return open_repository(reference, NO_ARGUMENTS)  # the catalogue knows no revisions


def ask(planner: Planner, options: ServingOptions, reference: str = QWEN, fleet: Fleet | None = None) -> Plan:
    return planner.plan(fleet or declared(), options, Asked(reference=reference))


def test_a_model_is_opened_once_whatever_is_turned() -> None:
    reader = Reader()
    planner = Planner(reader)
    for words in ((), ("--max-num-seqs", "8"), ("--dtype", "float16"), ("--quantization", "fp8")):
        ask(planner, ServingOptions(engine_args=words))
    ask(planner, ServingOptions(context="8192", kv_cache_dtype="fp8"))
    assert reader.opened == [QWEN]
    ask(planner, ServingOptions(engine_args=("--revision", "v2", "--max-num-seqs", "8")), "Qwen/Qwen3-8B")
    ask(planner, ServingOptions(), "Qwen/Qwen3-8B")
    assert reader.opened == [QWEN, "Qwen/Qwen3-8B", "Qwen/Qwen3-8B"]


def test_the_description_follows_the_arguments_that_bear_on_it() -> None:
    planner = Planner()
    plain = ask(planner, ServingOptions()).model["weights_bytes"]
    eight_bit = ask(planner, ServingOptions(engine_args=("--quantization", "fp8"))).model["weights_bytes"]
    assert eight_bit < plain
    assert ask(planner, ServingOptions()).model["weights_bytes"] == plain


def test_a_model_that_could_not_be_read_is_tried_again() -> None:
    reader = Reader()
    planner = Planner(reader)
    reader.broken = True
    with pytest.raises(ModelError):
        ask(planner, ServingOptions())
    reader.broken = False
    assert ask(planner, ServingOptions()).recommended is not None
    assert len(reader.opened) == 2


def test_with_a_claim_a_model_need_not_be_readable() -> None:
    reader = Reader()
    reader.broken = True
    planner = Planner(reader)
    for claim in ("60GiB", "70GiB"):
        made = ask(planner, ServingOptions(vram_claim=claim), "nobody/nothing")
        assert made.recommended is not None
    assert reader.opened == ["nobody/nothing"]


def test_several_threads_read_a_model_once() -> None:
    reader = Reader()
    planner = Planner(reader)
    fleet = declared()
    plans: list[Plan] = []
    threads = [
        threading.Thread(target=lambda: plans.append(ask(planner, ServingOptions(), QWEN, fleet)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reader.opened == [QWEN]
    assert all(plan == plans[0] for plan in plans)
    assert len(plans) == 4


# ---------------------------------------------------------------------- changes

QUESTIONS = {
    "context": (QWEN, ServingOptions(context="32768", strategies=()), small(2)),
    "max-model-len": (QWEN, ServingOptions(engine_args=("--max-model-len", "32768")), small(2)),
    "long": ("Qwen/Qwen3-235B-A22B", ServingOptions(context="131072", concurrency=16), declared()),
    "concurrency": (QWEN, ServingOptions(context="16384", concurrency=64), declared()),
    "utilization": (
        QWEN,
        ServingOptions(context="2048", engine_args=("--gpu-memory-utilization", "0.7")),
        small(2),
    ),
    "busy": (QWEN, ServingOptions(context="2048", gpus=("lab:0,1",)), small(2, free=38 * GIB)),
    "idle": ("Qwen/Qwen3-8B", ServingOptions(context="2048"), small(2, free=30 * GIB)),
    "own sizes": (
        "Qwen/Qwen3-8B",
        ServingOptions(engine_args=("-tp", "1", "--pipeline-parallel-size=3")),
        small(2),
    ),
    "sizes": (QWEN, ServingOptions(engine_args=("-tp=1", "--max-num-seqs", "8")), small(2)),
    "by hand": (QWEN, ServingOptions(context="8192", gpus=("lab:0",)), declared()),
    "batch": (
        "Qwen/Qwen3-8B",
        ServingOptions(
            context="8192",
            concurrency=16,
            engine_args=("--max-num-batched-tokens", "65536", "--max-num-seqs", "1024"),
        ),
        small(1),
    ),
    "tight": ("Qwen/Qwen3-14B", ServingOptions(context="40960", concurrency=2), small(1)),
    "sequences": (
        "google/gemma-3-12b-it",
        ServingOptions(context="8192", concurrency=6, engine_args=("--max-num-seqs", "1024")),
        small(1),
    ),
}


def remedies() -> Iterator[tuple[str, StrategyResult, Remedy]]:
    planner = Planner()
    for name, (reference, options, fleet) in QUESTIONS.items():
        made = ask(planner, options, reference, fleet)
        for result in made.strategies:
            for remedy in result.remedies:
                yield name, result, remedy


FOUND = list(remedies())


ELSEWHERE = {
    "dtype",
    "enforce_eager",
    "expert_parallel",
    "graphs",
    "max_lora_rank",
    "max_loras",
    "other_hosts",
    "pair",
    "process",
    "replicas",
    "stop",
}
"""Kinds that other fleets and models show (`tests/properties/test_remedies_random.py`)."""


def test_the_sample_fleets_have_every_other_kind_of_remedy() -> None:
    assert set(KINDS) - {remedy.kind for _, _, remedy in FOUND} <= ELSEWHERE
    after = changed(QWEN, ServingOptions(), {"--dtype": "float16"})
    assert after == (QWEN, ServingOptions(engine_args=("--dtype", "float16")))


@pytest.mark.parametrize(
    ("name", "result", "remedy"), FOUND, ids=[f"{n}-{r.strategy}-{m.kind}" for n, r, m in FOUND]
)
def test_a_remedy_applied_makes_its_strategy_fit(name: str, result: StrategyResult, remedy: Remedy) -> None:
    reference, options, fleet = QUESTIONS[name]
    after = changed(reference, options, remedy.change)
    if remedy.kind == "more_gpus":
        assert after is None
        return
    assert after is not None
    made = ask(Planner(), after[1], after[0], fleet)
    strategy = StrategyName(remedy.change.get("--strategy", result.strategy))
    judged = next(item for item in made.strategies if item.strategy is strategy)
    assert judged.verdict is Verdict.FITS
    if "--strategy" in remedy.change:
        assert made.recommended == (strategy, 0)


def test_a_change_replaces_what_stands_there_in_any_spelling() -> None:
    options = ServingOptions(engine_args=("-tp=2", "--max_model_len", "4096", "--seed", "1"))
    after = changed("m", options, {"--tensor-parallel-size": 4, "--max-model-len": 2048})
    assert after == (
        "m",
        replace(
            options,
            engine_args=("--seed", "1", "--tensor-parallel-size", "4", "--max-model-len", "2048"),
        ),
    )


def test_flags_and_lists_and_gpus_are_written_as_they_are_typed() -> None:
    options = ServingOptions(gpus=("lab:0",), engine_args=("--cudagraph-capture-sizes", "1", "2", "4"))
    change = {
        "--gpus": ("h2:0,1",),
        "--enforce-eager": True,
        "--cudagraph-capture-sizes": (1, 2),
        "--limit-mm-per-prompt": {"image": 0},
    }
    after = changed("m", options, change)
    words = ("--enforce-eager", "--cudagraph-capture-sizes", "1", "2", "--limit-mm-per-prompt", '{"image":0}')
    assert after == ("m", replace(options, gpus=("h2:0,1",), engine_args=words))


@pytest.mark.parametrize(
    "change", [{"stop": "old"}, {"process": "h1:12"}, {"stop": "old", "--context": 4096}]
)
def test_what_is_no_option_cannot_be_said(change: dict[str, object]) -> None:
    assert changed("m", ServingOptions(), change) is None


def test_another_model_leaves_the_revision_behind() -> None:
    options = ServingOptions(engine_args=("--revision", "abc", "--seed", "1"))
    assert changed("m", options, {"model": "n"}) == ("n", replace(options, engine_args=("--seed", "1")))


def test_flags_are_taken_out_with_their_values() -> None:
    words = ("--hf-overrides", '{"a": 1}', "-tp", "2", "--enforce-eager")
    assert without_flags(words, ("--hf-overrides",)) == ("-tp", "2", "--enforce-eager")
