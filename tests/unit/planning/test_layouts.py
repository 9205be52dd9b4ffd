"""Layouts of the same GPUs: each is judged as a plan would, and the comparison says which is for what."""

import json
import re
import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gpuplan.cli.app import run
from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Candidate, Plan
from gpuplan.domain.workload import EMPTY_WORKLOAD, EngineArguments, Workload
from gpuplan.engine.architectures import describe
from gpuplan.engine.arguments import parse
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.operations.cards import card_of
from gpuplan.operations.estimate import hardware_fleet
from gpuplan.planning.layouts import Comparison, Layout, compare, fact_of
from gpuplan.planning.planner import candidate_of, plan
from gpuplan.planning.request import PlanRequest
from gpuplan.present.document import text_of
from gpuplan.present.findings import word
from gpuplan.present.layout_words import layout_flags, layout_name, layout_table
from gpuplan.sources.catalogue import accelerators

CONFIGS = Path(__file__).parents[2] / "data" / "configs"
LATENT, GROUPED, DENSE = "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-235B-A22B-FP8", "Qwen/Qwen3-32B"


@cache
def profile_of(name: str) -> ModelProfile:
    return describe(name, json.loads((CONFIGS / f"{name.replace('/', '__')}.json").read_text()))


def request_of(name: str, gpu: str, hosts: int, workload: Workload = EMPTY_WORKLOAD) -> PlanRequest:
    card, count = accelerators.parse_gpu_option(gpu)
    (one,) = hardware_fleet(card, count, None).hosts
    fleet = Fleet(hosts=tuple(replace(one, name=f"h{number}") for number in range(hosts)))
    return PlanRequest(
        fleet=fleet, profile=profile_of(name), workload=workload, utilization=0.9, accelerators=card_of
    )


def places_of(request: PlanRequest) -> list[tuple[str, int]]:
    return [(host.name, gpu.index) for host in request.fleet.hosts for gpu in host.gpus]


@cache
def compared(name: str, gpu: str, hosts: int) -> Comparison:
    request = request_of(name, gpu, hosts)
    made = compare(request, places_of(request))
    assert made is not None
    return made


def named(made: Comparison) -> dict[str, Layout]:
    rows = fact_of(made).figures["layouts"]
    return {layout_name(row): each for row, each in zip(rows, made.layouts, strict=True)}


def served(*words: str) -> Workload:
    return replace(EMPTY_WORKLOAD, engine=parse(("--model", "m", *words), version=DEFAULT))


def layouts_told(candidate: Candidate) -> list[Fact]:
    return [fact for fact in candidate.facts if fact.code == "GP312"]


def best_of(made: Plan) -> Candidate:
    best = candidate_of(made)
    assert best is not None
    return best


def test_every_way_to_use_sixteen_cards_is_there() -> None:
    assert set(named(compared(LATENT, "H200:8", 2))) == {
        *("TP16", "TP16·EP", "TP8·DP2·EP", "TP4·DP4·EP", "TP2·DP8·EP", "DP16·EP"),
        *("TP8·PP2", "TP4·PP4", "TP2·PP8"),
    }


def test_replicas_divide_latents_and_tensor_parallel_repeats_them() -> None:
    rows = named(compared(LATENT, "H200:8", 2))
    assert compared(LATENT, "H200:8", 2).latent
    assert rows["DP16·EP"].kv_cache_tokens > 5 * rows["TP16·EP"].kv_cache_tokens
    assert (rows["DP16·EP"].weights_bytes or 0) > (rows["TP16·EP"].weights_bytes or 0)
    assert rows["TP16"].over_hosts
    assert not rows["TP8·PP2"].over_hosts
    tokens = [each.kv_cache_tokens for each in compared(LATENT, "H200:8", 2).layouts]
    assert tokens == sorted(tokens, reverse=True)


def test_kv_heads_are_divided_until_there_are_no_more() -> None:
    rows = named(compared(GROUPED, "H100:8", 2))
    assert rows["TP16·EP"].kv_cache_tokens < 0.4 * rows["TP4·PP4"].kv_cache_tokens
    assert "4 KV heads" in " ".join(word(fact_of(compared(GROUPED, "H100:8", 2))).because)


def test_a_row_says_what_the_plan_of_that_layout_says() -> None:
    for words in (
        ("--data-parallel-size", "16", "--enable-expert-parallel"),
        ("--tensor-parallel-size", "8", "--data-parallel-size", "2", "--enable-expert-parallel"),
    ):
        best = best_of(plan(request_of(LATENT, "H200:8", 2, served(*words))))
        (fact,) = layouts_told(best)
        (mine,) = [row for row in fact.figures["layouts"] if row["chosen"]]
        assert best.memory is not None
        assert mine["kv_cache_tokens"] == best.memory.kv_cache_tokens * best.parallelism.data
        assert mine["kv_cache_bytes"] == min(rank.kv_cache_bytes for rank in best.memory.ranks)
        assert mine["largest_context"] == best.memory.largest_max_model_len
        free = named(compared(LATENT, "H200:8", 2))[layout_name(mine)]
        assert free.kv_cache_tokens == mine["kv_cache_tokens"]


def test_a_model_larger_than_a_host_is_compared_unasked() -> None:
    best = best_of(plan(request_of(LATENT, "H100:8", 2)))
    assert len(best.placement) == 2
    (fact,) = layouts_told(best)
    (mine,) = [row for row in fact.figures["layouts"] if row["chosen"]]
    assert best.memory is not None
    assert mine["kv_cache_tokens"] == best.memory.kv_cache_tokens


def test_a_plan_on_one_host_or_of_a_dense_model_is_not() -> None:
    assert not layouts_told(best_of(plan(request_of(GROUPED, "H200:8", 1))))
    assert not layouts_told(
        best_of(plan(request_of(DENSE, "H100:8", 1, replace(EMPTY_WORKLOAD, replicas=2))))
    )


def test_sizes_that_cannot_be_built_and_those_that_do_not_fit_say_why() -> None:
    """Blocks of 128 that a rank's share of an expert cuts were refused before 0.29."""
    request = replace(request_of(GROUPED, "L40S:8", 1), version=EngineVersion(0, 20))
    made = compare(request, places_of(request))
    assert made is not None
    rows = named(made)
    assert rows["TP8"].reason is not None
    assert "not divisible" in rows["TP8"].reason
    assert rows["TP8"].weights_bytes is None
    assert "not divisible" in text_of(tuple(layout_table(fact_of(made).figures, 100)))
    short = compared(GROUPED, "L40S:4", 1)
    full = named(short)["DP4·EP"]
    assert not full.fits
    assert (full.gap_bytes or 0) > 0
    assert "short by" in text_of(tuple(layout_table(fact_of(short).figures, 100)))
    assert "none of" in word(fact_of(short)).headline


def test_replicas_of_a_dense_model_are_copies_of_their_own() -> None:
    rows = named(compared(DENSE, "H100:8", 1))
    assert {"TP8", "2×TP4", "4×TP2", "8×TP1", "TP4·PP2"} <= set(rows)
    assert rows["2×TP4"].separate
    assert rows["8×TP1"].kv_cache_tokens < rows["TP8"].kv_cache_tokens
    assert (rows["8×TP1"].weights_bytes or 0) > 7 * (rows["TP8"].weights_bytes or 0)


def test_users_are_spread_over_the_replicas() -> None:
    """64 requests of 32k at once: on one latent cache for all they do not fit, over 16 they do."""
    workload = replace(EMPTY_WORKLOAD, context=32768, concurrency=64, engine=EngineArguments())
    request = request_of(LATENT, "H200:8", 2, workload)
    made = compare(request, places_of(request))
    assert made is not None
    rows = named(made)
    assert rows["DP16·EP"].fits
    assert not rows["TP16·EP"].fits
    assert made.users == 64


def test_unlike_cards_are_judged_by_the_worst_replica() -> None:
    request = request_of(LATENT, "H200:8", 2)
    small, _ = accelerators.parse_gpu_option("H100:8")
    (weak,) = hardware_fleet(small, 8, None).hosts
    mixed = replace(request, fleet=Fleet(hosts=(request.fleet.hosts[0], replace(weak, name="h1"))))
    made = compare(mixed, places_of(mixed))
    assert made is not None
    row = named(made)["TP8·DP2·EP"]
    whole = named(compared(LATENT, "H200:8", 2))["TP8·DP2·EP"]
    assert row.kv_cache_tokens < whole.kv_cache_tokens


def test_cards_that_are_not_to_be_had_are_no_comparison() -> None:
    request = request_of(LATENT, "H200:8", 1)
    assert compare(request, [("h0", 0), ("h0", 11)]) is None


def test_table_and_words_name_every_layout_and_how_to_ask_for_it() -> None:
    made = compared(LATENT, "H200:8", 2)
    fact = fact_of(made)
    for width in (60, 80, 120):
        rows = text_of(tuple(layout_table(fact.figures, width))).splitlines()
        assert len(rows) == 1 + len(made.layouts)
        assert all(len(row) <= width for row in rows)
    finding = word(fact)
    assert "9 of 9 layouts fit" in finding.headline
    assert "latents" in finding.because[0]
    assert finding.hint is not None
    asked = re.findall(r"-- (--[^;,]+)", finding.hint)
    assert asked
    for words in (*asked, *(layout_flags(row).removeprefix("-- ") for row in fact.figures["layouts"])):
        parse(("--model", "m", *shlex.split(words)), version=DEFAULT)


def test_estimate_compares_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    config = str(CONFIGS / f"{DENSE.replace('/', '__')}.json")
    assert run(["estimate", config, "--gpu", "H100:4", "--layouts", "-o", "json"]) == 0
    (finding,) = [each for each in json.loads(capsys.readouterr().out)["findings"] if each["code"] == "GP312"]
    assert {row["tensor"] for row in finding["figures"]["layouts"]} == {1, 2, 4}
    assert run(["estimate", config, "--gpu", "H100:4", "--layouts"]) == 0
    assert "2×TP2" in capsys.readouterr().out
    assert run(["estimate", config, "--gpu", "H100:4"]) == 0
    assert "GP312" not in capsys.readouterr().out
