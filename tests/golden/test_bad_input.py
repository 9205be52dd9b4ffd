"""Every wrong input ends in one clear error: the place, what is wrong, the way out, the right exit status, no traceback."""

import io
import json
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from gpuplan.cli.app import run
from gpuplan.errors import ExitCode
from tests.hub_server import Hub, running_hub

ROOT = Path(__file__).parents[2]
MODEL = "Qwen/Qwen3-32B"
PLAN = ("plan", MODEL, "-i", "inventory.example.yaml", "--no-probe")
ESTIMATE = ("estimate", MODEL, "--gpu")
CONFIG: dict[str, Any] = json.loads(
    (ROOT / "tests/data/configs/Qwen__Qwen3-32B.json").read_text(encoding="utf-8")
)
VISION: dict[str, Any] = json.loads(
    (ROOT / "tests/data/configs/Qwen__Qwen3-VL-8B-Instruct.json").read_text(encoding="utf-8")
)
EVIL = "\x1b[31mevil\x07\u202egnp\x9b2J\u200b"
"""ANSI colour, bell, right-to-left override, one-byte CSI, zero-width space."""


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(ROOT)


def result(words: Sequence[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(words)
    return status, out.getvalue(), err.getvalue()


def refused(words: Sequence[str], status: int = ExitCode.USAGE) -> tuple[str, str]:
    """Error and hint of a command that is refused; nothing else is printed, nothing in it moves a cursor."""
    started = time.monotonic()
    got, out, err = result(words)
    assert (got, out) == (status, "")
    assert time.monotonic() - started < 10
    return parts_of(err)


def parts_of(err: str) -> tuple[str, str]:
    lines = err.splitlines()
    assert lines, "nothing was said"
    assert err.replace("\n", "").isprintable()
    assert "Traceback" not in err
    assert lines[0].startswith("error: ")
    assert lines[-1].startswith("hint: "), "there is no way out"
    assert sum(line.startswith(("error: ", "hint: ")) for line in lines) == 2
    return "\n".join(lines[:-1]).removeprefix("error: "), lines[-1].removeprefix("hint: ")


# -- the command line -----------------------------------------------------


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ((*PLAN, "--contxt", "5"), "--contxt: `gpuplan plan` has no such option", "--context?"),
        ((*PLAN, "--gpu", "h100-a:0"), "--gpu:", "--gpus?"),
        ((*PLAN, "--concurency=4"), "--concurency:", "--concurrency?"),
        (
            (*PLAN, "--gpu-memory-utilization", "0.9"),
            "an argument of vLLM",
            "-- --gpu-memory-utilization VALUE",
        ),
        ((*PLAN, "--gpu_memory_utilization=0.9"), "an argument of vLLM", "-- --gpu-memory-utilization VALUE"),
        ((*PLAN, "--enforce-eager"), "an argument of vLLM", "-- --enforce-eager"),
        ((*PLAN, "-tp", "2"), "-tp: an argument of vLLM", "-- -tp VALUE"),
        ((*PLAN, "--max-num-seq", "8"), "--max-num-seq:", "-- --max-num-seqs"),
        ((*PLAN, "-z"), "-z: `gpuplan plan` has no such option", "gpuplan plan --help"),
        ((*PLAN, "--context"), "--context needs a value", "gpuplan plan --help"),
        ((*PLAN, "--no-probe=1"), "--no-probe takes no value", "gpuplan plan --help"),
        (("plan",), "MODEL is missing", "gpuplan plan Qwen/Qwen3-32B"),
        ((*PLAN, "more"), "'more' is more than it takes", "gpuplan plan --help"),
        (("plna", MODEL), "'plna': gpuplan has no such command", "`gpuplan plan`"),
        (("",), "'': gpuplan has no such command", "commands: tui, init, probe, check, plan"),
        (("--frobnicate",), "--frobnicate", "gpuplan --help"),
        (("estimate", MODEL), "--gpu is missing", "--gpu H100-80GB:2"),
        (("schema",), "NAME is missing", "gpuplan schema plan"),
        (("schema", "plann"), "no schema 'plann'", "'plan'"),
        (("explain", "GP9999"), "no finding 'GP9999'", "gpuplan explain"),
        (("models", "no-such-model-anywhere"), "nothing in the catalogue", "gpuplan models"),
        (("gpus", "h1000"), "'h1000'", "H100-80GB"),
        ((*PLAN, "-o", "yaml"), "--output yaml: neither table nor json", "-o json"),
        ((*PLAN, "--output=JSON"), "--output JSON", "-o json"),
    ],
)
def test_command_line(words: Sequence[str], error: str, hint: str) -> None:
    said, way_out = refused(words)
    assert error in said
    assert hint in way_out


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("--context", ["0", "-5", str(10**30), "abc", "3.5", "", "²", "1e3", "max "]),
        ("--concurrency", ["0", "-1", "abc", "1.5", "", str(10**30), "9" * 5000]),
        ("--replicas", ["0", "-1", "abc", str(10**9)]),
        ("--vram-claim", ["0", "-1", "abc", "1e99", "", "80", "80 GiBB", "9" * 400]),
        ("--ram-claim", ["0", "-1", "abc", "7"]),
        ("--strategy", ["foo", "single-gpu", ""]),
        ("--placement", ["foo", "SPREAD"]),
        ("--executor", ["foo", "rays"]),
        ("--category", ["foo", "llms"]),
        ("--kv-cache-dtype", ["fp9", ""]),
        ("--vllm-version", ["foo", "", "0.3.0", "0.33", "9" * 50]),
        ("--host", ["h100-c", ""]),
        ("--label", ["zone", "zone=q", "zon=a", "=a"]),
        ("--gpus", ["h100-a", "h100-a:", ":0", "h100-a:0,0", "h100-a:0,", "h100-a:9", "h100-c:0", "lab:2"]),
        ("--gpus", ["h100-a:-1", f"h100-a:{10**30}", "h100-a:GPU-0", "h100-a:x", "h100-a:²"]),
    ],
)
def test_option_names_itself(flag: str, values: Sequence[str]) -> None:
    for value in values:
        said, _ = refused_or_planned((*PLAN, f"{flag}={value}"))
        if said is not None:
            assert said.startswith((flag, "vLLM ")) or "is not a vLLM version" in said, said


def refused_or_planned(words: Sequence[str]) -> tuple[str | None, str]:
    """Values that some release may accept (a version, an empty option) are planned or refused, nothing else."""
    status, _, err = result(words)
    if status in (ExitCode.DONE, ExitCode.NO_FIT):
        assert words[-1] in PLANNED
        return None, ""
    assert status == ExitCode.USAGE
    return parts_of(err)


PLANNED = {"--vllm-version=0.33", "--context=max "}


@pytest.mark.parametrize(
    ("flag", "near"),
    [
        ("--strategy=single-gpu", "single_gpu"),
        ("--placement=sprea", "spread"),
        ("--category=embeding", "embedding"),
        ("--host=h100-aa", "h100-a"),
        ("--kv-cache-dtype=fp8_e4m", "fp8_e4m3"),
        ("--gpus=h100-c:0", "h100-a"),
        ("--gpus=h100-a:9", "0, 1, 2, 3, 4, 5, 6, 7"),
        ("--label=zon=a", "zone"),
    ],
)
def test_near_miss_is_named(flag: str, near: str) -> None:
    assert near in " ".join(refused((*PLAN, flag)))


@pytest.mark.parametrize("words", [("--gpus", "h100-a:0", "--gpus", "h100-a:0"), ("--gpus", "h100-a:1,0,1")])
def test_gpu_named_twice(words: Sequence[str]) -> None:
    assert "named twice" in refused((*PLAN, *words))[0]


@pytest.mark.parametrize(
    ("gpu", "error"),
    [
        ("H100:0", "at least one GPU"),
        ("H100:-2", "not a number of GPUs"),
        ("H100:abc", "not a number of GPUs"),
        ("H100:", "not a number of GPUs"),
        ("H100:1000000000", "at most"),
        ("H10O", "did you mean"),
        ("", "names no GPU"),
        ("custom=", "is not a size"),
        ("custom=0GiB", "without memory"),
        ("custom=80", "less memory than any GPU has"),
        ("=80GiB", "names no GPU"),
        ("custom=80GiB=2", "is not"),
    ],
)
def test_hardware(gpu: str, error: str) -> None:
    assert error in refused((*ESTIMATE, gpu))[0]


@pytest.mark.parametrize("free", ["-1", "abc", "90GiB", ""])
def test_free_memory(free: str) -> None:
    assert refused((*ESTIMATE, "H100", f"--free={free}"))[0].startswith("--free")


def test_no_free_memory_is_no_fit() -> None:
    assert result((*ESTIMATE, "H100", "--free", "0"))[0] == ExitCode.NO_FIT


# -- the engine's arguments -----------------------------------------------


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (("--gpu-memory-utilization", "1.2"), "1.2 is not in (0, 1]", "0.9"),
        (("--gpu-memory-utilization", "0"), "0 is not in (0, 1]", "0.9"),
        (("--gpu-memory-utilization=-0.5",), "-0.5 is not in (0, 1]", "0.9"),
        (("--gpu-memory-utilization", "abc"), "'abc' is not a number", "0.9"),
        (("--gpu-memory-utilization", "nan"), "not a finite number", "0.9"),
        (("--gpu-memory-utilization", "1e400"), "not a finite number", "0.9"),
        (("--gpu-memory-utilization",), "needs a value", "--gpu-memory-utilization"),
        (("--gpu-memory-utilisation", "0.9"), "not an argument of vllm serve", "--gpu-memory-utilization?"),
        (("--tensor-parallel-size", "3"), "(64) must be divisible by tensor parallel size (3)", "1, 2, 4, 8"),
        (("-tp", "3"), "--tensor-parallel-size 3", "1, 2, 4, 8"),
        (("-tp", str(10**12)), "must be divisible", "1, 2, 4, 8"),
        (("-tp", "9" * 30), "not a whole number", "--tensor-parallel-size 1"),
        (("-tp", "0"), "less than 1", "--tensor-parallel-size 1"),
        (("-tp", "two"), "not a whole number", "--tensor-parallel-size 1"),
        (("-pp", "65"), "65 pipeline stages for 64 layers", "fewer stages"),
        (("--max-model-len", "0"), "not a length", "--max-model-len 32768"),
        (("--max-num-seqs", "0"), "less than 1", "--max-num-seqs"),
        (("--dtype", "float8"), "not one of", "--dtype"),
        (("--quantization", "fb8"), "fp8", "--quantization"),
        (("--hf-overrides", "{"), "not a JSON object", "--hf-overrides '{"),
        (("--hf-overrides", "[]"), "not a JSON object", "--hf-overrides '{"),
        (("--hf-overrides", '{"num_hidden_layers": 0}'), "--hf-overrides: num_hidden_layers is 0", "…"),
        (("other/model",), "named already", "once"),
    ],
)
def test_engine_argument(words: Sequence[str], error: str, hint: str) -> None:
    said, way_out = refused((*PLAN, "--", *words))
    assert error in said
    assert hint in way_out


def test_selection_and_sizes_that_contradict_each_other() -> None:
    said, way_out = refused((*PLAN, "--gpus", "h100-a:0,1", "--", "-tp", "4"))
    assert "2 GPUs" in said
    assert "4 GPUs" in way_out


def test_estimate_with_sizes_for_other_gpus() -> None:
    refused((*ESTIMATE, "H100", "--", "-tp", "2"))


# -- the model ------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "error", "hint"),
    [
        ("Qwn3-32B", "'Qwn3-32B'", "Qwen/Qwen3-32B"),
        ("Qwen/Qwen3-32", "no copy is in the cache", "Qwen/Qwen3-32B"),
        ("", "MODEL is empty", "config.json"),
        (" ", "MODEL is empty", "config.json"),
        ("a/b/c", "no such file or directory", "org/name"),
        ("/no/such/directory", "no such file or directory", "org/name"),
        ("no-such.gguf", "no such file or directory", "gpuplan models"),
        ("~nobody-there/model", "no such file", "org/name"),
        ("org/../etc", "no such file", "org/name"),
        ("x" * 5000, "no hub id", "gpuplan models"),
        ("README.md", "not a model", "config.json"),
        ("/dev/null", "not a model", "config.json"),
        ("tests", "has no config.json", "config.json"),
    ],
)
def test_model_name(reference: str, error: str, hint: str) -> None:
    said, way_out = refused(("plan", reference, "-i", "inventory.example.yaml", "--no-probe"))
    assert error in said
    assert hint in way_out


def config_refused(path: Path, content: bytes) -> tuple[str, str]:
    path.write_bytes(content)
    return refused(("plan", str(path), "-i", "inventory.example.yaml", "--no-probe"))


def written(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, indent=2).encode()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"hello", ":1:1: not JSON"),
        (b"", ":1:1: not JSON"),
        (b"[1]", ":1:1: expected a JSON object, found a list"),
        (b"null", "found null"),
        (b'{\n "a": 1,\n "b"', ":3:"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b'{\n "num_hidden_layers": NaN}', ":2:23: NaN"),
        (b'{"a":' + b"9" * 5000 + b"}", "not a usable JSON document"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a": 1, "a": 2}', "'a' is given twice"),
        (b"{}", "hidden_size is missing"),
        (b" " * (17 * 1024**2), "at most 16 MiB"),
    ],
)
def test_config_that_is_no_config(tmp_path: Path, content: bytes, error: str) -> None:
    path = tmp_path / "config.json"
    said, _ = config_refused(path, content)
    assert said.startswith(str(path))
    assert error in said


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("num_hidden_layers", 0, "is 0"),
        ("num_hidden_layers", -1, "is -1"),
        ("num_hidden_layers", 10**9, "is 1000000000"),
        ("num_hidden_layers", "64", "is '64', not a whole number"),
        ("num_hidden_layers", 64.5, "not a whole number"),
        ("num_hidden_layers", True, "not a whole number"),
        ("num_attention_heads", -8, "is -8"),
        ("num_attention_heads", 0, "is 0"),
        ("num_key_value_heads", 0, "is 0"),
        ("hidden_size", 0, "is 0"),
        ("hidden_size", [5120], "not a whole number"),
        ("hidden_size", float("inf"), "not a whole number"),
        ("head_dim", -1, "is -1"),
        ("vocab_size", 10**12, "is 1000000000000"),
        ("intermediate_size", "x", "not a whole number"),
        ("max_position_embeddings", 10**30, "it must lie between"),
        ("architectures", "Qwen3ForCausalLM", "not a list"),
        ("model_type", 5, "not a text"),
        ("quantization_config", "fp8", "not an object"),
    ],
)
def test_config_value_is_named_with_its_line(tmp_path: Path, key: str, value: Any, error: str) -> None:
    path = tmp_path / "config.json"
    content = written({**CONFIG, key: value})
    line = next(at for at, text in enumerate(content.decode().splitlines(), 1) if f'"{key}"' in text)
    said, way_out = config_refused(path, content)
    assert said.startswith(f"{path}:{line}: {key} {error}"[: len(f"{path}:{line}: {key} ")])
    assert error in said
    assert "--hf-overrides" in way_out


def test_model_told_by_its_name_alone_still_has_to_fit(tmp_path: Path) -> None:
    path = tmp_path / "unknown-32B.json"
    path.write_bytes(written({"max_position_embeddings": 4096}))
    status, out, _ = result(
        ("plan", str(path), "-i", "inventory.example.yaml", "--no-probe", "--host", "lab", "--gpus", "lab:0")
    )
    assert status == ExitCode.NO_FIT
    assert "no architecture is named" in out


def test_nested_config_value_is_named_with_its_line(tmp_path: Path) -> None:
    values = {**VISION, "text_config": {**VISION["text_config"], "num_hidden_layers": -4}}
    said, way_out = config_refused(tmp_path / "config.json", written(values))
    assert re.search(r"config\.json:\d+: text_config\.num_hidden_layers is -4", said)
    assert '{"text_config": {"num_hidden_layers": …}}' in way_out


@pytest.mark.parametrize(
    "quantization", [{"quant_method": "zzz"}, {"quant_method": 5}, {"quant_method": "awq", "bits": 0}]
)
def test_quantization_config(tmp_path: Path, quantization: Mapping[str, Any]) -> None:
    config_refused(tmp_path / "config.json", written({**CONFIG, "quantization_config": quantization}))


def test_overridden_value_of_a_catalogue_model_needs_no_file() -> None:
    said, _ = refused((*PLAN, "--", "--hf-overrides", '{"hidden_size": "wide"}'))
    assert said == "--hf-overrides: hidden_size is 'wide', not a whole number"


HEADER = json.dumps({"a": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}}).encode()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (struct.pack("<Q", len(HEADER)) + HEADER[:10], "but the file ends after 18"),
        (struct.pack("<Q", 2**60) + HEADER, "claims 1152921504606846976 bytes"),
        (struct.pack("<Q", 2**64 - 1) + HEADER, "claims 18446744073709551615 bytes"),
        (b"", "has 0 bytes"),
        (b"abc", "has 3 bytes"),
        (struct.pack("<Q", 4) + b"abcd", "not JSON"),
        (struct.pack("<Q", 2) + b"[]", "not a valid safetensors file"),
        (struct.pack("<Q", len(HEADER)) + HEADER, "not a valid safetensors file"),
    ],
)
def test_weights_that_are_no_safetensors(tmp_path: Path, content: bytes, error: str) -> None:
    (tmp_path / "config.json").write_bytes(written(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said, way_out = refused(("plan", str(tmp_path), "-i", "inventory.example.yaml", "--no-probe"))
    assert said.startswith(f"{tmp_path}/model.safetensors: ")
    assert error in said
    assert "config.json" in way_out
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def test_directory_of_gguf_files(tmp_path: Path) -> None:
    (tmp_path / "model-Q4.gguf").write_bytes(b"GGUF")
    assert "GGUF" in refused(("plan", str(tmp_path), "-i", "inventory.example.yaml", "--no-probe"))[0]
    assert refused(("plan", str(tmp_path / "model-Q4.gguf"), "-i", "inventory.example.yaml", "--no-probe"))


# -- the fleet ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "error"),
    [
        ("hosts:\n  - name: a\n    adress: x\n", 3, "address"),
        ("host:\n  - name: a\n", 1, "hosts"),
        ("hosts:\n  - name: a\n    gpus: {name: H100-80GB, cuont: 8}\n", 3, "count"),
        ("hosts:\n  - name: a\n    gpus: {name: H1OO-80GB, count: 8}\n", 3, "H100-80GB"),
        ("hosts:\n  - name: a\n    gpus: {name: H100-80GB, count: 0}\n", 3, "count"),
        ("hosts:\n  - name: a\n    gpus: {name: mine, memory: 0GiB}\n", 3, "memory"),
        ("hosts:\n  - name: a\n    reserve: {vram: lots}\n", 3, "vram"),
        ("hosts:\n  - name: a\n  - name: a\n", 3, "'a'"),
        ("hosts: [\n", 2, ""),
        ("hosts:\n\t- name: a\n", 2, ""),
        ("- name: a\n", 1, ""),
        ("", None, ""),
        ("hosts: []\n", None, ""),
    ],
)
def test_inventory(tmp_path: Path, text: str, line: int | None, error: str) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(text, encoding="utf-8")
    got, out, err = result(("plan", MODEL, "-i", str(path), "--no-probe"))
    assert got in (ExitCode.USAGE, ExitCode.NO_HOST)
    assert out == ""
    said, _ = parts_of(err)
    assert line is None or re.search(rf"{re.escape(str(path))}:{line}\b", said), said
    assert error in said


def snapshot(tmp_path: Path, *hosts: Mapping[str, Any]) -> str:
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps({"schema_version": 1, "hosts": list(hosts)}), encoding="utf-8")
    return str(path)


def gpu(**memory: Any) -> dict[str, Any]:
    return {"index": 0, "name": "NVIDIA L4", "memory": memory}


@pytest.mark.parametrize(
    ("host", "status", "error"),
    [
        ({"name": "a", "gpus": [gpu(total_bytes=None)]}, ExitCode.NO_HOST, "unknown"),
        ({"name": "a", "gpus": [gpu(total_bytes=0)]}, ExitCode.NO_HOST, "unknown"),
        ({"name": "a", "gpus": []}, ExitCode.NO_HOST, "no GPU"),
        (
            {"name": "a", "status": "unreachable", "failure": {"stage": "connect", "detail": "no route"}},
            ExitCode.NO_HOST,
            "no route",
        ),
        ({"name": "a", "gpus": [gpu(total_bytes=-1)]}, ExitCode.USAGE, "total_bytes"),
        ({"name": "a", "gpus": [gpu(total_bytes=10**300)]}, ExitCode.USAGE, "total_bytes"),
        ({"name": "a", "gpus": [gpu(total_bytes="80GiB")]}, ExitCode.USAGE, "total_bytes"),
        ({"name": "a", "gpus": [gpu(total_bytes=10, free_bytes=11)]}, ExitCode.USAGE, "free_bytes"),
        ({"name": "a", "gpus": [gpu(total_bytes=10), gpu(total_bytes=10)]}, ExitCode.USAGE, "twice"),
        ({"name": "a", "gpsu": []}, ExitCode.USAGE, "gpus"),
        ({"gpus": []}, ExitCode.USAGE, "name"),
    ],
)
def test_snapshot(tmp_path: Path, host: Mapping[str, Any], status: ExitCode, error: str) -> None:
    assert error in refused(("plan", MODEL, "--snapshot", snapshot(tmp_path, host)), status)[0]


def test_gpu_of_unknown_memory_is_left_out_and_said(tmp_path: Path) -> None:
    path = snapshot(
        tmp_path,
        {"name": "a", "gpus": [gpu(total_bytes=24 * 2**30), {**gpu(total_bytes=None), "index": 1}]},
    )
    status, out, err = result(("plan", "Qwen/Qwen3-4B", "--snapshot", path))
    assert (status, err) == (ExitCode.DONE, "")
    assert "GP401" in out
    assert "unknown" in refused(("plan", "Qwen/Qwen3-4B", "--snapshot", path, "--gpus", "a:1"))[0]


@pytest.mark.parametrize("option", ["-i", "--snapshot"])
@pytest.mark.parametrize("name", ["missing", "", "\0", os.fsdecode(b"\xff\xfe"), "x" * 5000])
def test_fleet_file_that_is_not_there(option: str, name: str) -> None:
    refused(
        ("plan", MODEL, f"{option}={name}" if option != "-i" else "-i", *([name] if option == "-i" else []))
    )


@pytest.mark.parametrize("option", ["-i", "--snapshot"])
@pytest.mark.parametrize("path", ["tests", "/dev/null", "LICENSE", "README.md"])
def test_fleet_file_that_is_something_else(option: str, path: str) -> None:
    assert path in refused(("plan", MODEL, option, path))[0]


def test_no_inventory_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said, way_out = refused(("plan", MODEL), ExitCode.NO_HOST)
    assert "$GPUPLAN_INVENTORY" in said
    assert "gpuplan estimate" in way_out


# -- text from elsewhere --------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        (EVIL,),
        (f"--{EVIL}",),
        ("plan", EVIL),
        ("plan", f"org/{EVIL}"),
        ("plan", f"./{EVIL}"),
        (*PLAN, EVIL),
        (*PLAN, f"--{EVIL}"),
        (*PLAN, "--context", EVIL),
        (*PLAN, "--concurrency", EVIL),
        (*PLAN, "-o", EVIL),
        (*PLAN, "--strategy", EVIL),
        (*PLAN, "--host", EVIL),
        (*PLAN, "--label", EVIL),
        (*PLAN, "--label", f"zone={EVIL}"),
        (*PLAN, "--gpus", f"{EVIL}:0"),
        (*PLAN, "--gpus", f"h100-a:{EVIL}"),
        (*PLAN, "--vram-claim", EVIL),
        (*PLAN, "--vllm-version", EVIL),
        (*PLAN, "--", EVIL),
        (*PLAN, "--", f"--{EVIL}"),
        (*PLAN, "--", "--dtype", EVIL),
        ("plan", MODEL, "-i", EVIL, "--no-probe"),
        ("plan", MODEL, "--snapshot", EVIL),
        (*ESTIMATE, EVIL),
        (*ESTIMATE, f"{EVIL}=80GiB"),
        (*ESTIMATE, "H100", "--free", EVIL),
        ("explain", EVIL),
        ("models", EVIL),
        ("gpus", EVIL),
        ("schema", EVIL),
    ],
)
def test_error_shows_control_characters_harmlessly(
    words: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPLAN_INVENTORY", str(ROOT / "inventory.example.yaml"))
    refused(words)


@pytest.mark.parametrize("json_wanted", [False, True])
@pytest.mark.parametrize("name", [EVIL, os.fsdecode(b"m\xff\xfe"), "שלום-עולם", "日本語モデル" * 30])
def test_table_shows_names_harmlessly(tmp_path: Path, name: str, json_wanted: bool) -> None:
    directory = tmp_path / name[:60]
    directory.mkdir()
    values = {**CONFIG, "architectures": [EVIL], "model_type": "qwen3"}
    (directory / "config.json").write_bytes(written(values))
    status, out, err = result(
        (
            "plan",
            str(directory),
            "-i",
            "inventory.example.yaml",
            "--no-probe",
            *(("-o", "json") if json_wanted else ()),
        )
    )
    assert (status, err) == (ExitCode.DONE, "")
    assert out.replace("\n", "").isprintable()
    out.encode("utf-8")
    if json_wanted:
        assert json.loads(out)["model"]["name"] == name[:60]


def test_hundreds_of_hosts_that_are_down_do_not_bury_the_plan(tmp_path: Path) -> None:
    failure = {"stage": "connect", "detail": "no route to host"}
    down = [{"name": f"d{number}", "status": "unreachable", "failure": failure} for number in range(300)]
    up = {"name": "a", "gpus": [gpu(total_bytes=24 * 2**30)]}
    command = ("plan", "Qwen/Qwen3-4B", "--snapshot", snapshot(tmp_path, *down, up))
    _, out, _ = result(command)
    assert out.count("[GP402]") == 3
    assert "and 297 more of GP402" in out
    _, document, _ = result((*command, "-o", "json"))
    assert document.count('"GP402"') == 300


def test_failure_of_a_host_is_shown_harmlessly(tmp_path: Path) -> None:
    down = {"name": "b", "status": "unreachable", "failure": {"stage": "connect", "detail": EVIL}}
    up = {"name": "a", "gpus": [gpu(total_bytes=24 * 2**30)]}
    status, out, err = result(("plan", "Qwen/Qwen3-4B", "--snapshot", snapshot(tmp_path, up, down)))
    assert (status, err) == (ExitCode.DONE, "")
    assert out.replace("\n", "").isprintable()


# -- the process ----------------------------------------------------------


def process(
    words: Sequence[str], *, stdout: Any = subprocess.PIPE, **environment: str
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "gpuplan", *words],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def ended(running: "subprocess.Popen[str]", seconds: float = 30) -> tuple[int, str]:
    _, err = running.communicate(timeout=seconds)
    return running.returncode, err


def test_reader_that_goes_away_is_no_failure() -> None:
    running = process(("models", "-o", "json"))
    assert running.stdout is not None
    running.stdout.close()
    assert running.stderr is not None
    assert running.stderr.read() == ""
    running.stderr.close()
    assert running.wait(timeout=30) == 141


def test_full_disk_is_said() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        status, err = ended(process(PLAN, stdout=full))
    assert (status, err) == (1, "gpuplan: the output cannot be written: No space left on device\n")


def test_closed_stdout() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m gpuplan plan {MODEL} -i inventory.example.yaml --no-probe >&-"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_terminal_that_knows_ascii_only() -> None:
    running = process(PLAN, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    out, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (0, "")
    assert out.isascii()


def test_working_directory_that_was_removed(tmp_path: Path) -> None:
    script = f"mkdir gone && cd gone && rmdir ../gone && exec {sys.executable} -m gpuplan plan {MODEL}"
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == ExitCode.NO_HOST
    parts_of(done.stderr)


# -- the hub --------------------------------------------------------------


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as server:
        yield server


def hub_says(home: Path, endpoint: str, **environment: str) -> tuple[int, str, str]:
    running = process(
        ("plan", "org/model", "-i", "inventory.example.yaml", "--no-probe"),
        HF_ENDPOINT=endpoint,
        HF_HUB_OFFLINE=environment.pop("HF_HUB_OFFLINE", "0"),
        HF_HOME=str(home / "hf"),
        XDG_CACHE_HOME=str(home / "cache"),
        **environment,
    )
    status, err = ended(running, 60)
    return (status, *parts_of(err))


FILES = {
    "config.json": written(CONFIG),
    "model.safetensors": struct.pack("<Q", 2**60) + HEADER,
}


def test_hub_offline(tmp_path: Path) -> None:
    status, said, way_out = hub_says(tmp_path, "http://127.0.0.1:9", HF_HUB_OFFLINE="1")
    assert status == ExitCode.USAGE
    assert "HF_HUB_OFFLINE" in said
    assert "HF_HUB_OFFLINE=0" in way_out


def test_hub_that_refuses_the_connection(tmp_path: Path) -> None:
    status, said, way_out = hub_says(tmp_path, "http://127.0.0.1:9")
    assert status == ExitCode.USAGE
    assert "refused the connection" in said
    assert "gpuplan models" in way_out


@pytest.mark.parametrize("endpoint", ["not-an-address", "ftp://x", "http://[::1"])
def test_hub_address_that_is_none(tmp_path: Path, endpoint: str) -> None:
    status, said, way_out = hub_says(tmp_path, endpoint)
    assert status == ExitCode.USAGE
    assert said.startswith("HF_ENDPOINT")
    assert "https://" in way_out


def test_gated_repository(tmp_path: Path, hub: Hub) -> None:
    hub.add("org/model", FILES, token="secret-token")
    status, said, way_out = hub_says(tmp_path, hub.endpoint)
    assert status == ExitCode.USAGE
    assert "gated" in said
    assert "hf auth login" in way_out


def test_repository_that_does_not_exist(tmp_path: Path, hub: Hub) -> None:
    status, said, _ = hub_says(tmp_path, hub.endpoint)
    assert status == ExitCode.USAGE
    assert "not found" in said


def test_header_on_the_hub_that_claims_too_much(tmp_path: Path, hub: Hub) -> None:
    hub.add("org/model", FILES)
    status, said, way_out = hub_says(tmp_path, hub.endpoint)
    assert status == ExitCode.USAGE
    assert "claims 1152921504606846976 bytes" in said
    assert "config.json" in way_out
    assert hub.sent_of("model.safetensors") < 1024


def test_absurd_config_on_the_hub(tmp_path: Path, hub: Hub) -> None:
    hub.add("org/model", {"config.json": written({**CONFIG, "num_hidden_layers": 10**9})})
    status, said, way_out = hub_says(tmp_path, hub.endpoint)
    assert status == ExitCode.USAGE
    assert said.startswith("org/model/config.json: num_hidden_layers is 1000000000")
    assert "--hf-overrides" in way_out


def test_slow_hub(tmp_path: Path, hub: Hub) -> None:
    hub.add("org/model", FILES, delay=30)
    started = time.monotonic()
    status, said, way_out = hub_says(tmp_path, hub.endpoint, HF_HUB_ETAG_TIMEOUT="1")
    assert status == ExitCode.USAGE
    assert "did not answer in time" in said
    assert "again" in way_out
    assert time.monotonic() - started < 20


def test_interrupt_while_the_hub_is_slow(tmp_path: Path, hub: Hub) -> None:
    hub.add("org/model", FILES, trickle=1)
    running = process(
        ("plan", "org/model", "-i", "inventory.example.yaml", "--no-probe"),
        HF_ENDPOINT=hub.endpoint,
        HF_HUB_OFFLINE="0",
        HF_HOME=str(tmp_path),
        XDG_CACHE_HOME=str(tmp_path),
    )
    while not hub.requests and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    assert ended(running, 10) == (130, "gpuplan: interrupted\n")
