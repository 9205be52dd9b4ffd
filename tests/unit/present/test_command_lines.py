"""Commands to copy: what is pasted asks for what the plan was asked, and no secret is in it."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from gpuplan.cli.app import application
from gpuplan.domain.plan import Plan
from gpuplan.operations.dry_run import serving_of
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.replan import serving_options
from gpuplan.present.command_lines import deploy_command, deploy_words, serve_command
from gpuplan.present.plan_document import plain, plan_document
from gpuplan.sources import plan_json
from tests.made_plans import FLEETS, LAB, at, choices, made

ASKED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "context": {"context": "32k", "concurrency": 4},
    "longest": {"context": "max"},
    "dtype": {"kv_cache_dtype": "fp8"},
    "replicas": {"replicas": 3, "placement": "binpack", "no_distributed": True},
    "selection": {"gpus": ("h100-a:0,1", "h100-b:2"), "executor": "ray"},
    "claims": {"vram_claim": "100GiB", "ram_claim": "20GiB", "strategies": ("single_host",)},
    "image": {"image": "vllm/vllm-openai:v0.11.0", "category": "llm"},
    "arguments": {"engine_args": ("--max-num-seqs", "64", "--hf-overrides", '{"a": "b c"}', "-tp", "2")},
}


def _parsed(words: tuple[str, ...]) -> tuple[ServingOptions, dict[str, Any]]:
    """What `gpuplan deploy` makes of the words, by its own parser."""
    assert words[:2] == ("gpuplan", "deploy")
    mine = list(words[2:])
    engine: list[str] = []
    if "--" in mine:
        where = mine.index("--")
        mine, engine = mine[:where], mine[where + 1 :]
    group: Any = typer.main.get_command(application(("deploy", "plan")))
    given = group.commands["deploy"].make_context("deploy", mine).params
    serving = ServingOptions(
        context=given["length"],
        concurrency=given["concurrency"],
        kv_cache_dtype=given["kv_cache_dtype"],
        category=given["category"],
        replicas=given["replicas"],
        placement=given["placement"],
        executor=given["executor"],
        image=given["image"],
        vllm_version=given["vllm_version"],
        vram_claim=given["vram_claim"],
        ram_claim=given["ram_claim"],
        allow_overcommit=given["allow_overcommit"],
        no_distributed=given["no_distributed"],
        strategies=tuple(given["strategy"] or ()),
        gpus=tuple(given["gpus"] or ()),
        engine_args=tuple(engine),
    )
    return serving, given


def _with_defaults(options: ServingOptions) -> dict[str, Any]:
    """Options with what stands for none written out."""
    return {name: getattr(options, name) for name in ServingOptions.__dataclass_fields__} | {
        "concurrency": options.concurrency or 1,
        "placement": options.placement or "spread",
    }


@pytest.mark.parametrize("asked", ASKED)
def test_the_deploy_command_asks_the_same(asked: str) -> None:
    plan = made("Qwen/Qwen3-32B", **ASKED[asked])
    text = deploy_command(plan.request)
    serving, given = _parsed(tuple(shlex.split(text)))
    assert given["model"] == "Qwen/Qwen3-32B"
    assert _with_defaults(serving) == _with_defaults(serving_of(plan.request))


def test_a_saved_plan_asks_the_same_as_its_request(tmp_path: Path) -> None:
    plan = made("Qwen/Qwen3-32B", **ASKED["context"])
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plain(plan_document(plan))))
    assert serving_options(plan_json.load(path)) == serving_of(plan.request)


def test_hosts_labels_and_inventory_are_named() -> None:
    plan = made("Qwen/Qwen3-32B", labels=("zone=a",))
    _serving, given = _parsed(deploy_words(plan.request, inventory="my fleet.yaml"))
    assert list(given["label"]) == ["zone=a"]
    assert given["inventory"] == "my fleet.yaml"
    assert "'my fleet.yaml'" in deploy_command(plan.request, inventory="my fleet.yaml")


def test_overcommit_is_said() -> None:
    plan = made("Qwen/Qwen3-32B", FLEETS / "busy.json", gpus=("h1:0",), allow_overcommit=True)
    serving, _given = _parsed(deploy_words(plan.request))
    assert serving.allow_overcommit
    assert serving.gpus == ("h1:0",)


def _secret() -> Plan:
    return made("Qwen/Qwen3-4B", LAB, engine_args=("--api-key", "hunter2-hunter2", "--max-num-seqs", "8"))


def test_no_secret_is_in_a_command() -> None:
    plan = _secret()
    for text in (deploy_command(plan.request), serve_command(at(plan, choices(plan)[0]))):
        assert "hunter2" not in text
        assert "***" in text


def test_the_serve_command_is_the_candidates() -> None:
    plan = made("Qwen/Qwen3-32B", **ASKED["arguments"])
    candidate = at(plan, choices(plan)[0])
    words = shlex.split(serve_command(candidate))
    environment = [f"{name}={value}" for name, value in candidate.env]
    assert words == [*environment, "vllm", *candidate.vllm_args]


def test_a_hostile_reference_is_one_word() -> None:
    plan = made("Qwen/Qwen3-4B", LAB)
    request = {**plan.request, "reference": "a; rm -rf $HOME [red]\n"}
    assert shlex.split(deploy_command(request))[2] == "a; rm -rf $HOME [red]\n"
