"""Plans as the commands make them, for tests of what is shown of a candidate."""

import os
from functools import cache
from pathlib import Path
from typing import Any

from gpuplan.domain.plan import Candidate, Plan
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.plan import ServingOptions, make_plan

ROOT = Path(__file__).parents[1]
FLEETS = ROOT / "tests" / "golden" / "cases" / "fleets"
EXAMPLE = ROOT / "inventory.example.yaml"
LAB = FLEETS / "lab.yaml"


@cache
def made(reference: str, fleet: Path = EXAMPLE, labels: tuple[str, ...] = (), **serving: Any) -> Plan:
    """`gpuplan plan REFERENCE` on declared hardware (YAML) or a snapshot (JSON)."""
    is_snapshot = fleet.suffix == ".json"
    options = FleetOptions(
        environ=os.environ,
        cwd=ROOT,
        inventory=None if is_snapshot else fleet,
        snapshot=fleet if is_snapshot else None,
        no_probe=not is_snapshot,
        labels=labels,
    )
    return make_plan(reference, options, ServingOptions(**serving))


def choices(plan: Plan) -> list[tuple[int, int]]:
    """Every candidate, as strategy and index."""
    return [(at, index) for at, one in enumerate(plan.strategies) for index in range(len(one.candidates))]


def at(plan: Plan, choice: tuple[int, int]) -> Candidate:
    return plan.strategies[choice[0]].candidates[choice[1]]


def many() -> dict[str, Plan]:
    """One host, several hosts with stages, replicas, a claim, overcommit, nothing that fits."""
    return {
        "fits": made("Qwen/Qwen3-32B"),
        "stages": made("deepseek-ai/DeepSeek-R1", labels=("zone=a",), context="16k"),
        "replicas": made("Qwen/Qwen3-32B", replicas=3, placement="binpack", context="8k"),
        "claim": made("Qwen/Qwen3-32B", vram_claim="100GiB"),
        "overcommit": made("Qwen/Qwen3-32B", FLEETS / "busy.json", gpus=("h1:0",)),
        "mixed": made("Qwen/Qwen3-4B", FLEETS / "mixed.json", context="8k"),
        "no fit": made("deepseek-ai/DeepSeek-R1", LAB),
        "quantized": made("Qwen/Qwen3-32B", LAB, context="16k"),
    }
