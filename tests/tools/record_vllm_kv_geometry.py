"""Asks vLLM's own planner about the KV caches of many models on many releases, and records what it says.

    python -m tests.tools.record_vllm_kv_geometry SOURCES           # asks, compares with what is recorded
    python -m tests.tools.record_vllm_kv_geometry SOURCES --write   # asks and records

SOURCES holds an unpacked wheel per release (`0.33.0/vllm/…`); neither torch nor a GPU is needed. About a minute.
`tests/conformance/test_kv_geometry.py` holds gpuplan against the record.

Exit status 0: everything as recorded (or written); 1: not.
"""

import argparse
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conformance.kv_geometry_cases import (
    RECORDED,
    RELEASES,
    STATE_RELEASES,
    cases,
    fingerprint,
    state_cases,
)

ROOT = Path(__file__).parents[2]
PLANNER = "tests.tools.vllm_kv_planner"
STATES = "tests.tools.vllm_state_blocks"
Record = dict[str, dict[str, dict[str, Any]]]


def ask(release: str, sources: Path) -> dict[str, dict[str, Any]]:
    """The answers of one release by case."""
    questions = dict(cases(release))
    answers = _run(PLANNER, questions, sources / release)
    return {
        name: {"question": fingerprint(questions[name]), "least": questions[name]["least"], **answer}
        for name, answer in answers.items()
    }


def ask_states(release: str, sources: Path) -> dict[str, dict[str, Any]]:
    """Attention blocks and padded states of one release by case."""
    questions = {name: question for name, question, _ in state_cases(release)}
    answers = _run(STATES, questions, sources / release)
    return {
        name: {"question": fingerprint(questions[name]), "answer": answer} for name, answer in answers.items()
    }


def _run(module: str, questions: dict[str, Any], tree: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", module, str(tree.resolve())],
        cwd=ROOT,
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=True,
    )
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def write(record: Record) -> None:
    """The same answers give the same bytes."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    with RECORDED.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as file:
        file.write(text.encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sources", type=Path, help="directory with an unpacked wheel per release")
    parser.add_argument("--write", action="store_true", help="record the answers")
    options = parser.parse_args()
    record = {release: ask(release, options.sources) for release in RELEASES}
    record |= {f"states {release}": ask_states(release, options.sources) for release in STATE_RELEASES}
    if options.write:
        write(record)
        return 0
    old: Record = json.loads(gzip.decompress(RECORDED.read_bytes()))
    changed = [
        name
        for release, answers in record.items()
        for name, answer in answers.items()
        if old.get(release, {}).get(name) != answer
    ]
    for name in changed:
        sys.stdout.write(f"not as recorded: {name}\n")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
