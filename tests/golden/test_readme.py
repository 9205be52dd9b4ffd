"""Every example of the README runs, offline, as it is written."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
PROMPT = "$ gpuplan "
DEAD_HUB = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1"}


def _examples() -> list[str]:
    lines = README.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]


def test_readme_has_examples() -> None:
    assert _examples()


@pytest.mark.parametrize("example", _examples())
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
