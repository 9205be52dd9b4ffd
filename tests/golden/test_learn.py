"""What `gpuplan learn` prints, and what a plan says of what was learned; `GPUPLAN_UPDATE_GOLDEN=1` writes the files anew.

Every case begins with nothing learned, and with logs that were written last on 2026-11-01.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.test_cli import compare, outline, printed, transcript

LOGS = Path(__file__).parents[1] / "data" / "logs"
WRITTEN = 1793534400
NEXT, SMALL, FAILED, PART = "next.log", "small.log", "failed.log", "part.log"
SOURCES = {
    NEXT: LOGS / "startup" / "Qwen3-Next-80B-A3B-Instruct_H200-TP2_0.10.2.log",
    SMALL: LOGS / "0.9.2-qwen2.5-1.5b.log",
    FAILED: LOGS / "failed-0.23.0-tp4-free-memory.log",
    PART: LOGS / "0.26.1-qwen3-coder-30b.log",
}
ESTIMATE = (
    "estimate Qwen/Qwen3-Next-80B-A3B-Instruct --gpu H200:2 --vllm-version 0.10.2 {options} -- -tp 2 "
    "--max-model-len 262144"
)
CASES = {
    "learn": (f"learn {NEXT} --gpu H200",),
    "learn-partly": (f"learn {SMALL} {PART}",),
    "learn-failed": (f"learn {FAILED} --gpu H100-80GB",),
    "learn-dry-run": (f"learn {SMALL} --gpu L4 --dry-run", "learn --list"),
    "learn-list": (f"learn {NEXT} --gpu H200", f"learn {SMALL}", "learn --list"),
    "learn-forget": (f"learn {NEXT} --gpu H200", "learn --forget all"),
    "learn-nothing": ("learn",),
    "learn-no-file": ("learn nothing.log",),
    "learn-wrong-card": (f"learn {NEXT} --gpu L40S",),
    "learn-then-estimate": (f"learn {NEXT} --gpu H200", ESTIMATE.format(options="")),
    "help-learn": ("learn --help",),
}
"""Commands in order; what the last one prints is kept."""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A directory with the logs and the state; its name is as long everywhere, so that lines break alike."""
    directory = tempfile.mkdtemp(prefix="gpuplan-", dir="/tmp")
    for name, source in SOURCES.items():
        shutil.copyfile(source, Path(directory, name))
        os.utime(Path(directory, name), (WRITTEN, WRITTEN))
    monkeypatch.setenv("XDG_STATE_HOME", directory)
    yield directory
    shutil.rmtree(directory)


def run(commands: tuple[str, ...], place: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int, str, str]:
    """The last command with what it prints, the directory's name taken out."""
    command, result = "", (0, "", "")
    for command in commands:
        words = [f"{place}/{word}" if word.endswith(".log") else word for word in command.split()]
        result = printed(" ".join(words), monkeypatch)
    status, out, err = result
    return command, status, out.replace(place, "/tmp/gpuplan-STATE000"), err.replace(place, "")


@pytest.mark.parametrize("name", CASES)
def test_command_prints(name: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command, status, out, err = run(CASES[name], place, monkeypatch)
    assert [line for line in out.splitlines() if len(line) > 80] == []
    compare(f"learn/{name}", transcript(command, status, out, err))


@pytest.mark.parametrize("name", ["learn", "learn-failed", "learn-list"])
def test_document_has(name: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *before, last = CASES[name]
    command, status, out, err = run((*before, f"{last} -o json"), place, monkeypatch)
    document = json.loads(out)
    assert next(iter(document)) == "schema_version"
    shape = json.dumps(outline(document), indent=1, ensure_ascii=False)
    compare(f"learn/{name}-json", transcript(command, status, f"{shape}\n", err))


def test_a_plan_without_what_was_learned_is_byte_for_byte_the_same(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ESTIMATE.format(options="")
    before = printed(plan, monkeypatch)
    run((f"learn {NEXT} --gpu H200",), place, monkeypatch)
    learned = printed(plan, monkeypatch)
    ignored = printed(ESTIMATE.format(options="--no-calibration"), monkeypatch)
    shutil.rmtree(Path(place, "gpuplan"))
    assert learned != before
    assert ignored == before
    assert printed(plan, monkeypatch) == before
