"""What the commands print, whole: stdout, stderr and exit status of one command a file.

`GPUPLAN_UPDATE_GOLDEN=1 pytest tests/golden/test_cli.py` writes the files anew; the diff is then read like code.
"""

import io
import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from gpuplan.cli.app import run

CASES = Path(__file__).parent / "cases"
FLEETS = CASES / "fleets"
UPDATE = os.environ.get("GPUPLAN_UPDATE_GOLDEN", "0") not in {"", "0"}
EXAMPLE = "-i inventory.example.yaml --no-probe"
MIXED = "--snapshot tests/golden/cases/fleets/mixed.json"
BUSY = "--snapshot tests/golden/cases/fleets/busy.json"
WIDE = "-i tests/golden/cases/fleets/four-h100-hosts.yaml --no-probe"
LAB = "-i tests/golden/cases/fleets/lab.yaml --no-probe"

COMMANDS = {
    "plan": f"plan Qwen/Qwen3-32B {EXAMPLE}",
    "plan-wide": f"plan Qwen/Qwen3-32B {EXAMPLE}",
    "plan-context": f"plan Qwen/Qwen3-32B {EXAMPLE} --context 32k --concurrency 8",
    "plan-context-max": f"plan Qwen/Qwen3-32B {EXAMPLE} --context max",
    "plan-engine-arguments": (
        f"plan Qwen/Qwen3-32B {EXAMPLE} -- --gpu-memory-utilization 0.85 --kv-cache-dtype fp8 -tp 2"
    ),
    "plan-two-hosts": f"plan deepseek-ai/DeepSeek-R1 {EXAMPLE} --label zone=a --context 16k",
    "plan-experts-over-replicas": (
        f"plan deepseek-ai/DeepSeek-R1 {WIDE} -- "
        "--data-parallel-size 4 --tensor-parallel-size 8 --enable-expert-parallel"
    ),
    "plan-experts-too-few-hosts": (
        f"plan deepseek-ai/DeepSeek-R1 {WIDE} --host h1 --host h2 --host h3 -- "
        "--data-parallel-size 4 --tensor-parallel-size 8 --enable-expert-parallel"
    ),
    "estimate-draft": (
        "estimate Qwen/Qwen3-32B --gpu H100 -- --speculative-config.method eagle3 "
        "--speculative-config.model tests/golden/cases/fleets/eagle3.json "
        "--speculative-config.num_speculative_tokens 3"
    ),
    "estimate-draft-unread": (
        "estimate Qwen/Qwen3-32B --gpu H100 -- --speculative-config.method eagle3 "
        "--speculative-config.model tests/golden/cases/fleets/none.json "
        "--speculative-config.num_speculative_tokens 3"
    ),
    "plan-no-fit": f"plan deepseek-ai/DeepSeek-R1 {LAB}",
    "plan-quantized-sibling": f"plan Qwen/Qwen3-32B {LAB} --context 16k",
    "plan-replicas": f"plan Qwen/Qwen3-32B {EXAMPLE} --replicas 3 --placement binpack --context 8k",
    "plan-too-many-replicas": f"plan Qwen/Qwen3-32B {EXAMPLE} --replicas 1000000",
    "plan-manual": f"plan Qwen/Qwen3-32B {EXAMPLE} --gpus h100-a:0,1,2",
    "plan-overcommit-refused": f"plan Qwen/Qwen3-32B {BUSY} --gpus h1:0",
    "plan-overcommit-allowed": f"plan Qwen/Qwen3-32B {BUSY} --gpus h1:0 --allow-overcommit",
    "plan-busy": f"plan Qwen/Qwen3-32B {BUSY}",
    "plan-mixed": f"plan Qwen/Qwen3-4B {MIXED} --context 8k",
    "plan-claim": f"plan Qwen/Qwen3-32B {EXAMPLE} --vram-claim 100GiB",
    "plan-claim-too-large": f"plan Qwen/Qwen3-32B {LAB} --vram-claim 200GiB",
    "plan-strategy-skipped": f"plan Qwen/Qwen3-32B {EXAMPLE} --strategy manual",
    "plan-not-distributed": f"plan Qwen/Qwen3-32B {EXAMPLE} --strategy multi_host --no-distributed",
    "plan-unknown-architecture": f"plan tests/golden/cases/fleets/unknown-7B.json {EXAMPLE}",
    "plan-older-engine": f"plan Qwen/Qwen3-32B {EXAMPLE} --vllm-version 0.9.2 --host lab",
    "plan-tensor-parallel-3": f"plan Qwen/Qwen3-32B {EXAMPLE} -- --tensor-parallel-size 3",
    "probe": f"probe {MIXED}",
    "probe-busy": f"probe {BUSY}",
    "probe-redacted": f"probe {BUSY} --redact",
    "probe-diff": "probe --diff tests/golden/cases/fleets/mixed.json tests/golden/cases/fleets/busy.json",
    "probe-diff-nothing": "probe --diff tests/golden/cases/fleets/busy.json tests/golden/cases/fleets/busy.json",
    "probe-diff-alone": "probe --save x.json --diff tests/golden/cases/fleets/busy.json tests/golden/cases/fleets/busy.json",
    "lint": "lint --gpus 8 --config Qwen/Qwen3-32B -- vllm serve Qwen/Qwen3-32B -tp 8",
    "lint-refused": "lint --gpus 4 -- vllm serve Qwen/Qwen3-32B -tp 3 -pp 2 --max-model-len 100k --enable-eplb",
    "lint-argument": "lint -- vllm serve my/model --tensor-paralel-size 4",
    "lint-older": "lint --vllm-version 0.14.1 --moe -- serve my/moe -dp 8 -ep --swap-space 4",
    "lint-nothing": "lint",
    "estimate": "estimate Qwen/Qwen3-32B --gpu H100-80GB:2 --context 32768",
    "estimate-wide": "estimate Qwen/Qwen3-32B --gpu H100-80GB:2 --context 32768",
    "estimate-no-fit": "estimate Qwen/Qwen3-32B --gpu L4 --context 8k",
    "estimate-custom": "estimate Qwen/Qwen3-4B --gpu my-card=24GiB --free 20GiB",
    "estimate-claim": "estimate Qwen/Qwen3-32B --gpu H100-80GB --vram-claim 100GiB",
    "explain": "explain GP204",
    "models": "models qwen3 fp8",
    "gpus": "gpus h100",
    "help": "--help",
    "help-plan": "plan --help",
    "help-tui": "tui --help",
    "help-probe": "probe --help",
    "help-init": "init --help",
    "help-restart": "restart --help",
    "help-sweep": "sweep --help",
    "sweep-nobody-to-ask": "sweep -i inventory.example.yaml",
    "sweep-no-duration": "sweep --yes --idle-for soon -i inventory.example.yaml",
}
"""Every command with the golden file it has to print; `-wide` ones see a terminal of 120 columns."""

DOCUMENTS = {
    "lint-json": "lint -o json --no-ray -- vllm serve my/model -tp 2 --distributed-executor-backend ray",
    "plan-json": f"plan Qwen/Qwen3-32B {EXAMPLE} --context 8k -o json",
    "plan-no-fit-json": f"plan Qwen/Qwen3-32B {LAB} --context 16k -o json",
    "estimate-json": "estimate Qwen/Qwen3-32B --gpu H100-80GB:2 -o json",
    "probe-json": f"probe {MIXED} -o json",
    "models-json": "models qwen3-32b -o json",
    "gpus-json": "gpus l40s -o json",
    "explain-json": "explain GP101 -o json",
}
"""JSON: names and kinds of every field, and the values that are decisions; bytes belong to the conformance tests."""

DECISIONS = frozenset(
    {
        "schema_version",
        "strategy",
        "verdict",
        "reason",
        "recommended",
        "parallelism",
        "code",
        "severity",
        "kind",
        "verified",
        "vllm_args",
        "evidence",
        "host",
        "index",
        "rank",
        "role",
        "name",
    }
)


MOST_STRATEGIES, MOST_ITEMS = 7, 1


def printed(command: str, monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command run in this process from the root of the checkout."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(Path(__file__).parents[2])
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(shlex.split(command))
    return status, out.getvalue(), re.sub(r"(?<=the snapshot is )\d+ \w+(?= old)", "…", err.getvalue())


def compare(name: str, text: str) -> None:
    path = CASES / f"{name}.txt"
    if UPDATE:
        path.write_text(text, encoding="utf-8")
    assert path.exists(), "GPUPLAN_UPDATE_GOLDEN=1 writes it"
    assert text == path.read_text(encoding="utf-8")


def transcript(command: str, status: int, out: str, err: str) -> str:
    parts = [f"$ gpuplan {command}\n", out]
    parts += [f"--- stderr\n{err}"] if err else []
    return "".join([*parts, f"--- exit {status}\n"])


@pytest.mark.parametrize("name", COMMANDS)
def test_command_prints(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = 120 if name.endswith("-wide") else 80
    status, out, err = printed(COMMANDS[name], monkeypatch, columns)
    compare(name, transcript(COMMANDS[name], status, out, err))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = printed(DOCUMENTS[name], monkeypatch)
    document = json.loads(out)
    assert next(iter(document)) == "schema_version"
    shape = json.dumps(outline(document), indent=1, ensure_ascii=False)
    compare(name, transcript(DOCUMENTS[name], status, f"{shape}\n", err))


@pytest.mark.parametrize("name", ["plan", "estimate", "lint", "snapshot", "inventory", "sweep"])
def test_schema_is_printed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = printed(f"schema {name}", monkeypatch)
    schema = json.loads(out)
    assert (status, err) == (0, "")
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["properties"]


def outline(value: Any, decided: bool = False) -> Any:
    """The document with every value that is no decision replaced by its kind, and of long lists only the start."""
    match value:
        case dict():
            return {key: outline(item, decided or key in DECISIONS) for key, item in value.items()}
        case list() if decided:
            return [outline(item, decided) for item in value]
        case list():
            strategies = any(isinstance(item, dict) and "strategy" in item for item in value)
            most = MOST_STRATEGIES if strategies else MOST_ITEMS
            rest = [f"… {len(value) - most} more"] if len(value) > most else []
            return [*(outline(item) for item in value[:most]), *rest]
        case _:
            return value if decided or value is None else type(value).__name__


WIDTHS = [name for name in COMMANDS if not name.startswith("help") and "-wide" not in name]


@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("columns", [20, 300])
def test_nothing_is_wider_than_the_terminal(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuplan.present.document import width_of

    _, out, _ = printed(COMMANDS[name], monkeypatch, columns)
    assert [line for line in out.splitlines() if width_of(line) > max(80, columns)] == []


def test_the_same_command_prints_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"{COMMANDS['plan-mixed']} -o json"
    assert printed(command, monkeypatch) == printed(command, monkeypatch)


@pytest.mark.parametrize("output", ["", "-o json"])
def test_a_plan_shows_no_secret_it_was_given(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = "--api-key quokka walrus --hf-token=axolotl"
    _, out, _ = printed(f"plan Qwen/Qwen3-32B {EXAMPLE} --host h100-a {output} -- {secrets}", monkeypatch)
    assert "--api-key" in out
    assert [word for word in ("quokka", "walrus", "axolotl") if word in out] == []
    assert "***" in out


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(Path(__file__).parents[2])
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    assert run(words) == 0
    return out.getvalue()


def test_a_terminal_gets_colours_and_no_color_takes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    import re

    words = shlex.split(COMMANDS["plan"])
    coloured = on_a_terminal(words, monkeypatch)
    assert "\x1b[" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    plain = on_a_terminal(words, monkeypatch)
    assert "\x1b" not in plain
    assert [row.rstrip() for row in re.sub(r"\x1b\[\d*m", "", coloured).splitlines()] == plain.splitlines()
