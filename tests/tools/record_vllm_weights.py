"""Asks vLLM's own model classes what they allocate for every model in `vllm-weights-more.jsonl.gz`, and records it.

    python -m tests.tools.record_vllm_weights ENVIRONMENT           # asks, compares with what is recorded
    python -m tests.tools.record_vllm_weights ENVIRONMENT --write   # asks and records
    python -m tests.tools.record_vllm_weights ENVIRONMENT --only 'moe/*'
    python -m tests.tools.record_vllm_weights ENVIRONMENT --add models.json --write   # further models

ENVIRONMENT is the directory of one with vLLM: `python -m venv`, torch for the CPU, then vllm with `--no-deps` and
the packages it asks for; no GPU. `--path DIR` puts a directory before the environment's own, where another release may lie
unpacked. The models of that release are asked, those of others left alone. What is run is the program that
`gpuplan verify` runs inside an image. One to three seconds for a rank.

A model of `--add` is an object with `name`, `config` (or `catalogue`: a file of the catalogue's), perhaps `hf_quant_config`,
`plain` (its config class is not transformers' own), `draft` (a draft model's config) with `method`, and `rows`:
`tp`, `pp`, `expert_parallel`, `gpu_arch`.

Exit status 0: all answered as recorded; 1: not.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from gpuplan.deploying.parameter_script import MODEL, PROGRAM, parameter_request, read_parameters

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "data" / "vllm-weights-more.jsonl.gz"
CATALOGUE = ROOT / "gpuplan" / "sources" / "catalogue" / "configs"
DRAFT = "{draft}"
CARDS = {
    "sm80": ("NVIDIA A100-SXM4-80GB", (8, 0)),
    "sm89": ("NVIDIA L40S", (8, 9)),
    "sm90": ("NVIDIA H100 80GB HBM3", (9, 0)),
    "sm100": ("NVIDIA B200", (10, 0)),
}
PLAIN = """\
from transformers import CONFIG_MAPPING, PretrainedConfig


class Plain(PretrainedConfig):
    model_type = @type@

    def __init__(self, **values):
        for key, value in list(values.items()):
            if key.endswith("_config") and isinstance(value, dict) and key != "quantization_config":
                kind = value.get("model_type")
                inner = {name: item for name, item in value.items() if name != "model_type"}
                values[key] = CONFIG_MAPPING[kind](**inner) if kind in CONFIG_MAPPING else Plain(**inner)
            if key not in ("architectures", "dtype", "torch_dtype"):
                setattr(self, key, values[key])
        super().__init__(**values)
"""
"""A config class for models whose own is code in their repository."""
Entry = dict[str, Any]


def recorded() -> list[Entry]:
    """Every model with its rows."""
    if not RECORDED.exists():
        return []
    with gzip.open(RECORDED, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write(entries: list[Entry]) -> None:
    """In the order of their names, the same bytes for the same content."""
    lines = (json.dumps(entry, separators=(",", ":")) for entry in sorted(entries, key=lambda e: e["name"]))
    RECORDED.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


def config_of(entry: Entry) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """config.json and hf_quant_config.json of a model."""
    if "catalogue" in entry:
        kept = json.loads((CATALOGUE / entry["catalogue"]).read_text())
        return kept["config"], entry.get("hf_quant_config", kept.get("hf_quant_config"))
    return entry["config"], entry.get("hf_quant_config")


def request_of(entry: Entry, row: dict[str, Any]) -> str:
    """What the program is asked for one row."""
    config, beside = config_of(entry)
    files: dict[str, Any] = {"config.json": {k: v for k, v in config.items() if k != "auto_map"}}
    if beside is not None:
        files["hf_quant_config.json"] = beside
    words = [MODEL, "--tensor-parallel-size", str(row["tp"]), "--pipeline-parallel-size", str(row["pp"])]
    words += ["--trust-remote-code", "--enforce-eager"]
    words += ["--enable-expert-parallel"] if row["expert_parallel"] else []
    if entry.get("plain"):
        files["config.json"]["auto_map"] = {"AutoConfig": "configuration_plain.Plain"}
        files["configuration_plain.py"] = PLAIN.replace("@type@", repr(config["model_type"]))
    models = {MODEL: files}
    if "draft" in entry:
        drafted = {"method": entry["method"], "model": DRAFT, "num_speculative_tokens": 3}
        words += ["--speculative-config", json.dumps(drafted)]
        models[DRAFT] = {"config.json": entry["draft"]}
    gpu, capability = CARDS[row["gpu_arch"]]
    return parameter_request(
        words,
        gpu=gpu,
        gpu_bytes=80 * 1024**3,
        capability=capability,
        count=max(8, row["tp"] * row["pp"]),
        models=models,
    )


def answers(environment: Path, path: str | None, asked: list[str]) -> Iterator[str]:
    """The release, then an answer a request."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "VLLM_HAS_FLASHINFER_CUBIN": "1"}
    if path is not None:
        variables["PYTHONPATH"] = path
    with subprocess.Popen(
        [environment / "bin" / "python", "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=variables,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline()
        for line in asked:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            yield process.stdout.readline()
        process.stdin.close()


def main() -> int:
    """Ask, compare, perhaps record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("environment", type=Path)
    parser.add_argument("--path")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="*")
    parser.add_argument("--add", type=Path)
    given = parser.parse_args()
    entries = recorded()
    if given.add is not None:
        fresh = json.loads(given.add.read_text())
        names = {entry["name"] for entry in fresh}
        entries = [entry for entry in entries if entry["name"] not in names] + fresh
    asked = [
        (entry, row, request_of(entry, row))
        for entry in entries
        if fnmatch(entry["name"], given.only)
        for row in entry["rows"]
    ]
    told = answers(given.environment, given.path, [request for _, _, request in asked])
    version = read_parameters(next(told)).version
    if version is None:
        sys.stderr.write("vLLM could not be imported there\n")
        return 1
    wrong = 0
    for (entry, row, _), line in zip(asked, told, strict=True):
        if entry.setdefault("vllm", version) != version:
            continue
        answer = read_parameters(line)
        label = f"{entry['name']} tp{row['tp']} pp{row['pp']}"
        drafted = "draft" in entry
        ranks = [
            [rank.draft_parameters, rank.draft_buffers] if drafted else [rank.parameters, rank.buffers]
            for rank in answer.ranks
        ]
        if answer.error is not None:
            wrong += 1
            sys.stdout.write(f"{label}: {answer.error}\n")
        elif row.get("ranks") != ranks:
            wrong += "ranks" in row
            sys.stdout.write(f"{label}: {ranks}, recorded {row.get('ranks')}\n")
            row["ranks"] = ranks
    if given.write:
        write([entry for entry in entries if all("ranks" in row for row in entry["rows"])])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
