"""Several models at once on a large fleet: 50 models on 200 hosts, the time it takes and the gap that is left.

    python -m tests.benchmarks.packing_scale

Prints a table; exits 1 when a bound is broken twice, when a placement is not what `plan` says of it, or when the fleet has
room for all models and one is not placed.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.plan import Verdict
from gpuplan.operations.packing_models import asked_models
from gpuplan.operations.plan_many import pack
from gpuplan.planning.packing.answer import Answer
from gpuplan.sources.models_yaml import ModelEntry, ModelsFile
from gpuplan.units import GIB, MIB

MODELS = 50
HOSTS = 200
SECONDS = 10.0
MOST_GAP = 0.10
"""Share of the GPUs taken that a better packing could do without at most."""
ROUNDS = 2
CARDS = (
    ("NVIDIA H100 80GB HBM3", 79, "9.0", 8),
    ("NVIDIA A100-SXM4-80GB", 79, "8.0", 8),
    ("NVIDIA L40S", 44, "8.9", 4),
    ("NVIDIA L4", 22, "8.9", 4),
)
CONFIGS = Path(__file__).parent.parent / "data" / "configs"
SIZES = (
    ("Qwen__Qwen3-8B", "16384", 8, True),
    ("Qwen__Qwen3-8B", "32768", 16, False),
    ("Qwen__Qwen3-32B", "32768", 8, False),
    ("google__gemma-3-4b-it", "8192", 4, True),
    ("Qwen__Qwen3-30B-A3B", "32768", 8, True),
)
"""Configuration, context, concurrency, and whether it shares GPUs."""


def fleet_of(hosts: int, *, busy: float) -> Fleet:
    """Hosts of four kinds, of whose memory others hold some: no two cards are alike."""
    random = Random(7)
    return Fleet(hosts=tuple(_host(number, random, busy) for number in range(hosts)))


def _host(number: int, random: Random, busy: float) -> Host:
    name, gib, capability, count = CARDS[number % len(CARDS)]
    gpus = []
    for index in range(count):
        held = random.randint(0, 512) * MIB
        if random.random() < busy:
            held += random.randint(4, gib // 2) * GIB
        gpus.append(
            Gpu(
                index=index,
                name=name,
                compute_capability=capability,
                total_bytes=gib * GIB,
                free_bytes=gib * GIB - held,
            )
        )
    return Host(
        name=f"host-{number:03}",
        labels=(("rack", str(number % 10)),),
        gpus=tuple(gpus),
        ram_total_bytes=512 * GIB,
        ram_available_bytes=512 * GIB,
    )


def file_of(models: int) -> ModelsFile:
    """Models of five sizes, one in five pinned to a rack, one in four with its replicas kept apart."""
    random = Random(11)
    return ModelsFile(path="models.yaml", models=tuple(_entry(number, random) for number in range(models)))


def _entry(number: int, random: Random) -> ModelEntry:
    config, context, concurrency, share = SIZES[number % len(SIZES)]
    name = f"m{number:02}"
    return ModelEntry(
        model=str(CONFIGS / f"{config}.json"),
        name=name,
        place=f"models.yaml:{number + 1}: models[{number}]",
        context=context,
        concurrency=concurrency,
        share=share,
        replicas=random.choice((1, 1, 2, 4)),
        priority=random.choice((1, 2, 5, 10)),
        labels=(("rack", str(random.randint(0, 9))),) if random.random() < 0.2 else (),
        anti_affinity=(name,) if random.random() < 0.25 else (),
    )


def measure(hosts: int, busy: float) -> tuple[Answer, float]:
    """The packing and the CPU seconds from models and fleet, both read, to the answer."""
    fleet, asked = fleet_of(hosts, busy=busy), asked_models(file_of(MODELS), None)
    start = time.process_time()
    answer = pack(asked, fleet)
    return answer, time.process_time() - start


def rows() -> Iterator[tuple[str, float, float]]:
    """Name, value and bound of each figure."""
    for hosts, busy in ((HOSTS, 0.2), (HOSTS // 10, 0.2)):
        answer, seconds = measure(hosts, busy)
        cost, bound = answer.packing.cost, answer.packing.bound
        of = f"{MODELS} models on {hosts} hosts"
        placed = sum(model.placed for model in answer.models)
        yield f"{of}, CPU s", seconds, SECONDS
        lost = sum(model.priority for model in answer.models)
        yield f"{of}, placed {placed}; priority gap", (cost[0] - bound[0]) / lost, MOST_GAP
        if not cost[0]:
            yield f"{of}, {cost[1]} GPUs; GPU gap", (cost[1] - bound[1]) / cost[1], MOST_GAP
        wrong = sum(
            copy.candidate.verdict is not Verdict.FITS for model in answer.models for copy in model.copies
        )
        yield f"{of}, placements that do not fit", wrong, 0


def main() -> int:
    for _ in range(ROUNDS):
        found = list(rows())
        print(f"{'several models at once':<62} {'is':>9} {'bound':>9}")
        for name, value, most in found:
            print(f"{name:<62} {value:9.3f} {most:9.3f}{'' if value <= most else '  BROKEN'}", flush=True)
        if all(value <= most for _, value, most in found):
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
