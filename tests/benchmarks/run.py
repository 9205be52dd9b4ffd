"""CPU time of whole commands, as the user waits for them: the best of a few medians, each against its bound.

    python tests/benchmarks/run.py

Prints a table; exits 1 when a bound is broken. CPU time (user + system of the process and what it started),
not wall time, because a machine that is busy with something else is no defect of ours.
"""

import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
RUNS = 7
ROUNDS = 3
"""A median over its bound is taken again: a shared machine may run at two thirds of its speed for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    arguments: tuple[str, ...]
    bound_seconds: float


COMMANDS = (
    Command(arguments=("--version",), bound_seconds=0.15),
    Command(arguments=("--help",), bound_seconds=0.5),
    Command(
        arguments=("plan", "Qwen/Qwen3-32B", "-i", "three_hosts.yaml", "--no-probe", "-o", "json"),
        bound_seconds=0.5,
    ),
)


def cpu_seconds(argv: list[str]) -> float:
    """User and system time of one run, in seconds; a run that fails raises CalledProcessError."""
    process = subprocess.Popen(argv, cwd=HERE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv)
    return usage.ru_utime + usage.ru_stime


def median_seconds(argv: list[str]) -> float:
    """Median of `RUNS` runs after one that warms the caches."""
    cpu_seconds(argv)
    return statistics.median(cpu_seconds(argv) for _ in range(RUNS))


def best_median_seconds(argv: list[str], bound_seconds: float) -> float:
    """The least of up to `ROUNDS` medians; the first one that keeps the bound is enough."""
    best = median_seconds(argv)
    for _ in range(ROUNDS - 1):
        if best <= bound_seconds:
            break
        best = min(best, median_seconds(argv))
    return best


def main() -> int:
    program = str(Path(sys.executable).with_name("gpuplan"))
    broken = False
    print(f"{'command':<70} {'CPU s':>7} {'bound':>7}")
    for command in COMMANDS:
        seconds = best_median_seconds([program, *command.arguments], command.bound_seconds)
        kept = seconds <= command.bound_seconds
        broken = broken or not kept
        name = " ".join(("gpuplan", *command.arguments))
        print(
            f"{name:<70} {seconds:7.3f} {command.bound_seconds:7.3f}{'' if kept else '  BROKEN'}", flush=True
        )
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
