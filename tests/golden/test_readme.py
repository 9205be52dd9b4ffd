"""Every example of the README that needs no hosts runs, offline, as it is written; `tests/hosts` runs the others."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
PROMPT = "$ gpuplan "
DEAD_HUB = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1"}


NEEDS_HOSTS = (
    "init",
    "probe",
    "check",
    "plan",
    "deploy",
    "status",
    "logs",
    "restart",
    "stop",
    "sweep",
    "unlock",
    "verify",
)


def examples() -> list[str]:
    lines = README.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]


def is_offline(example: str) -> bool:
    return "--no-probe" in example or not example.startswith(NEEDS_HOSTS)


def test_readme_has_examples_of_both_kinds() -> None:
    assert {is_offline(example) for example in examples()} == {True, False}


@pytest.mark.parametrize("example", [example for example in examples() if is_offline(example)])
def test_example_runs(example: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpuplan", *shlex.split(example)],
        cwd=README.parent,
        env=os.environ | DEAD_HUB,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
