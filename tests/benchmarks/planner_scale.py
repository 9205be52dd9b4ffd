"""The planner alone on large fleets: CPU time and peak memory of one plan, each against its bound.

    python tests/benchmarks/planner_scale.py

Prints a table; exits 1 when a bound is broken twice. Each plan runs in a process of its own, so that one's
peak memory is not another's.
"""

import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from gpuplan.cli.main import COLLECT_RARELY
from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.engine.architectures.describe import describe
from gpuplan.planning.planner import plan
from gpuplan.planning.request import PlanRequest
from gpuplan.units import GIB, KIB, MIB

GPUS_PER_HOST = 8
SMALL = 1_000
LARGE = 10_000
SMALL_SECONDS = 1.0
SMALL_BYTES = 300 * MIB
LARGE_FACTOR = 12.0
RUNS = 5
ROUNDS = 2
"""A broken bound is measured again: a shared machine may run at two thirds of its speed for a while."""
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 128,
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "max_position_embeddings": 40960,
    "num_attention_heads": 64,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "rope_theta": 1000000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}
"""Of the size of Qwen3-32B."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    cpu_seconds: float
    """Of the plan alone, without building the fleet."""
    peak_bytes: int
    """Of the process."""


def fleet_of(hosts: int) -> Fleet:
    """Hosts of 8 GPUs, no two hosts in the same state, so that nothing can be answered from one of them."""
    return Fleet(hosts=tuple(_host(number) for number in range(hosts)))


def _host(number: int) -> Host:
    gpus = tuple(_gpu(number, index) for index in range(GPUS_PER_HOST))
    return Host(
        name=f"host-{number:05}", address=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", gpus=gpus
    )


def _gpu(host: int, index: int) -> Gpu:
    total = 80 * GIB
    used = (host * GPUS_PER_HOST + index) % 4093 * MIB
    return Gpu(
        index=index,
        name="NVIDIA H100 80GB HBM3",
        uuid=f"GPU-{host:08x}-{index:04x}",
        compute_capability="9.0",
        total_bytes=total,
        free_bytes=total - used,
    )


def measure(hosts: int) -> Measure:
    """Plan once, in this process, which collects as rarely as every command does."""
    gc.set_threshold(*COLLECT_RARELY)
    request = request_for(fleet_of(hosts))
    gc.collect()
    start = time.process_time()
    plan(request)
    seconds = time.process_time() - start
    return Measure(cpu_seconds=seconds, peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB)


def measure_apart(hosts: int) -> Measure:
    """`measure` in a process of its own."""
    done = subprocess.run([sys.executable, __file__, str(hosts)], stdout=subprocess.PIPE, check=True)
    return Measure(**json.loads(done.stdout))


def request_for(fleet: Fleet) -> PlanRequest:
    """A dense model of 32 billion parameters that fits one GPU only where most of it is free."""
    return PlanRequest(fleet=fleet, profile=describe("dense-32b", CONFIG), utilization=0.9)


def compare() -> tuple[tuple[str, float, float], ...]:
    """One round: name, value and bound of each figure."""
    small: list[Measure] = []
    factors: list[float] = []
    for _ in range(RUNS):
        # the large run stands between two small ones: the machine's speed drifts
        before, middle, after = (measure_apart(hosts) for hosts in (SMALL, LARGE, SMALL))
        small += [before, after]
        factors.append(2 * middle.cpu_seconds / (before.cpu_seconds + after.cpu_seconds))
    small_seconds = statistics.median(one.cpu_seconds for one in small)
    peak = max(one.peak_bytes for one in small)
    return (
        (f"{SMALL} hosts x {GPUS_PER_HOST} GPUs, CPU s", small_seconds, SMALL_SECONDS),
        (f"{SMALL} hosts x {GPUS_PER_HOST} GPUs, peak MiB", peak / MIB, SMALL_BYTES / MIB),
        (f"{LARGE} hosts, times the CPU of {SMALL}", statistics.median(factors), LARGE_FACTOR),
    )


def main() -> int:
    if len(sys.argv) == 2:
        one = measure(int(sys.argv[1]))
        print(json.dumps({"cpu_seconds": one.cpu_seconds, "peak_bytes": one.peak_bytes}))
        return 0
    for _ in range(ROUNDS):
        rows = compare()
        print(f"{'planner':<44} {'is':>9} {'bound':>9}")
        for name, value, bound in rows:
            print(f"{name:<44} {value:9.3f} {bound:9.3f}{'' if value <= bound else '  BROKEN'}", flush=True)
        if all(value <= bound for _, value, bound in rows):
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
