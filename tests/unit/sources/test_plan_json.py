"""A plan file is read as it was written, or refused with its place; its secrets come from elsewhere."""

import copy
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.fleet import Basis, Fleet, Host
from gpuplan.domain.plan import Plan, StrategyName
from gpuplan.domain.saved_plan import SavedPlan
from gpuplan.domain.workload import Category
from gpuplan.engine.versions import DEFAULT
from gpuplan.errors import InventoryError, UsageError
from gpuplan.operations.models import Model
from gpuplan.operations.plan import Asked, ServingOptions, plan_model, workload_of
from gpuplan.operations.replan import serving_options
from gpuplan.planning.planner import candidate_of
from gpuplan.present.plan_document import plain, plan_document
from gpuplan.sources.plan_json import is_plan, load, parse
from tests.fleets import host, probed_fleet, profile

ASKED = ServingOptions(
    context="16K",
    concurrency=2,
    kv_cache_dtype="fp8",
    category="llm",
    replicas=2,
    placement="binpack",
    executor="mp",
    image="registry.lan:5000/vllm:v0.33.0",
    vllm_version="0.33.0",
    ram_claim="1GiB",
    allow_overcommit=True,
    no_distributed=True,
    strategies=("data_parallel",),
    engine_args=("--max-num-seqs 64",),
)


def made(options: ServingOptions = ASKED, *hosts: Host) -> Plan:
    model = Model(profile=profile("Qwen__Qwen3-4B"), category=Category.LLM, path="Qwen/Qwen3-4B")
    fleet = Fleet(hosts=hosts or (host("h1", "H100", 2, ram=100), host("h2", "H100", 1, ram=100)))
    asked = Asked(reference="qwen3-4b", hosts=("h1", "h2"), labels=("zone=a",))
    return plan_model(model, fleet, workload_of(options, DEFAULT), DEFAULT, asked)


def written(plan: Plan) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(plain(plan_document(plan))))
    return document


@cache
def plain_document() -> dict[str, Any]:
    return written(made())


def read(document: object, **given: Any) -> SavedPlan:
    return parse(json.dumps(document).encode(), "plan.json", **given)


def refusal(content: bytes, **given: Any) -> InventoryError:
    with pytest.raises(InventoryError) as caught:
        parse(content, "plan.json", **given)
    assert caught.value.message.startswith("plan.json")
    assert caught.value.hint
    return caught.value


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    document = copy.deepcopy(plain_document())
    change(document)
    return refusal(json.dumps(document).encode()).message


def chosen(document: dict[str, Any]) -> dict[str, Any]:
    name, index = document["recommended"]["strategy"], document["recommended"]["candidate"]
    found = next(result for result in document["strategies"] if result["strategy"] == name)
    candidate: dict[str, Any] = found["candidates"][index]
    return candidate


def test_what_was_asked_is_asked_again() -> None:
    saved = read(plain_document())
    assert (saved.reference, saved.hosts, saved.labels) == ("qwen3-4b", ("h1", "h2"), ("zone=a",))
    assert (saved.strategy, saved.basis) == (StrategyName.DATA_PARALLEL, Basis.ASSUMED)
    assert workload_of(serving_options(saved), DEFAULT) == workload_of(ASKED, DEFAULT)


def test_nothing_asked_is_asked_again() -> None:
    saved = read(written(made(ServingOptions())))
    again = workload_of(serving_options(saved), DEFAULT)
    assert (again.context, again.image, again.selection, again.strategies) == (None, None, (), ())
    assert again.allow_distributed
    assert not again.allow_overcommit


def test_gpus_chosen_by_hand_and_a_claim_are_asked_again() -> None:
    options = ServingOptions(gpus=("h1:0,1", "h2:0"), vram_claim="30GiB")
    saved = read(written(made(options)))
    again = workload_of(serving_options(saved), DEFAULT)
    assert again.selection == workload_of(options, DEFAULT).selection
    assert again.vram_claim_bytes == 30 * 1024**3


def test_what_was_recommended_is_kept() -> None:
    plan = made()
    candidate = candidate_of(plan)
    assert candidate is not None
    saved = read(written(plan)).candidate
    assert saved.placement == candidate.placement
    assert saved.parallelism == candidate.parallelism
    assert (saved.vllm_args, saved.env) == (candidate.vllm_args, candidate.env)


def test_who_holds_memory_is_kept() -> None:
    (seen, _) = probed_fleet().hosts
    plan = made(ServingOptions(gpus=("acme-gpu-1:1",), vram_claim="600MiB"), seen)
    candidate = candidate_of(plan)
    assert candidate is not None
    saved = read(written(plan)).candidate
    assert saved.placement == candidate.placement
    assert saved.placement[0].driver_version == "580.82.07"
    assert saved.placement[0].gpus[0].uuid == "MIG-1"


def test_a_plan_is_told_from_a_models_configuration(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plain_document(), indent=1))
    assert is_plan(path)
    assert load(path).path == str(path)
    path.write_text(json.dumps(plain_document(), indent=1)[:400])
    assert is_plan(path)
    path.write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    assert not is_plan(path)
    assert not is_plan(tmp_path / "missing.json")
    assert not is_plan(tmp_path)
    assert not is_plan("Qwen/Qwen3-4B")


def test_truncated_empty_or_no_json() -> None:
    content = json.dumps(plain_document(), indent=1).encode()
    assert "ends in the middle: the file is truncated" in refusal(content[:900]).message
    assert "is empty" in refusal(b" \n").message
    assert "plan.json:1:1: is not JSON" in refusal(b"serve me").message
    assert "is not UTF-8" in refusal(b'{"a": "\xff"}').message


@pytest.mark.parametrize("document", [[], {"schema_version": 1}, {"schema_version": 1, "hosts": []}, "plan"])
def test_something_else_is_not_a_plan(document: object) -> None:
    assert refusal(json.dumps(document).encode()).message == "plan.json: is not a plan"


def test_other_versions() -> None:
    assert "schema_version 2 was written by a newer gpuplan" in changed(
        lambda made: made.update(schema_version=2)
    )
    assert "schema_version: this key is required and must be 1" in changed(
        lambda made: made.update(schema_version=True)
    )


def test_no_recommendation() -> None:
    assert "the plan found no placement" in changed(lambda made: made.update(recommended=None))


def test_a_recommendation_that_is_not_there() -> None:
    message = changed(lambda made: made["recommended"].update(candidate=7))
    assert message == "plan.json: recommended: there is no candidate 7 of strategy data_parallel"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda made: made["request"].pop("reference"), "request.reference: this key is required"),
        (lambda made: made["request"].update(context=True), "request.context: must be"),
        (lambda made: made["request"].update(replicas="2"), "request.replicas: must be a whole number"),
        (
            lambda made: made["request"].update(executor="rya"),
            "request.executor: must be 'auto', 'ray' or 'mp'",
        ),
        (lambda made: made["request"].update(engine_args=[1]), "request.engine_args[0]: must be a text"),
        (lambda made: chosen(made).update(placement=[]), "candidates[0].placement: must not be empty"),
        (
            lambda made: chosen(made)["placement"][0]["gpus"][0].update(index=-1),
            "gpus[0].index: must be at least 0",
        ),
        (lambda made: chosen(made)["placement"][0]["gpus"].append({}), "gpus[1].index: this key is required"),
        (lambda made: chosen(made)["parallelism"].update(tensor=0), "parallelism.tensor: must be at least 1"),
        (
            lambda made: chosen(made)["parallelism"].update(tensor=2),
            "candidates[0].placement: has 2 GPUs, but its parallelism takes 4",
        ),
        (
            lambda made: chosen(made)["parallelism"].update(layer_partition=[1, 2]),
            "layer_partition: has 2 entries for 1 pipeline stages",
        ),
        (
            lambda made: chosen(made).update(placement=[chosen(made)["placement"][0]] * 2),
            "GPU 0 of h1 stands there twice",
        ),
        (lambda made: chosen(made).update(vllm_args=["m"]), "vllm_args: must begin with serve"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(change: Callable[[dict[str, Any]], object], said: str) -> None:
    assert said in changed(change)


def with_secret(*words: str) -> dict[str, Any]:
    return written(made(ServingOptions(engine_args=(*words, "--max-num-seqs=64"))))


def test_a_secret_is_taken_from_the_environment() -> None:
    document = with_secret("--api-key one two")
    assert document["request"]["engine_args"] == ["--api-key", "***", "***", "--max-num-seqs=64"]
    error = refusal(json.dumps(document).encode())
    assert "the value of --api-key is a secret, which a plan file does not hold" in error.message
    assert error.hint == (
        "set VLLM_API_KEY in the environment, or repeat it: gpuplan deploy plan.json -- --api-key VALUE"
    )
    saved = read(document, environ={"VLLM_API_KEY": "one"})
    assert saved.serving["engine_args"] == ("--max-num-seqs=64",)
    assert not [word for word in saved.candidate.vllm_args if "***" in word or word == "--api-key"]
    assert saved.candidate.vllm_args[-1] == "--max-num-seqs=64"


def test_a_secret_is_repeated() -> None:
    saved = read(with_secret("--api-key=one"), repeated=("--api-key", "one"))
    assert saved.serving["engine_args"] == ("--max-num-seqs=64", "--api-key", "one")
    assert saved.candidate.vllm_args[-1] == "--max-num-seqs=64"


def test_a_secret_without_a_variable_must_be_repeated() -> None:
    document = with_secret('--model-loader-extra-config={"token": "abc"}')
    error = refusal(json.dumps(document).encode(), environ={"HF_TOKEN": "x", "VLLM_API_KEY": "y"})
    assert error.hint == "repeat it: gpuplan deploy plan.json -- --model-loader-extra-config VALUE"
    saved = read(document, repeated=('--model-loader-extra-config={"token": "abc"}',))
    assert saved.serving["engine_args"][-1] == '--model-loader-extra-config={"token": "abc"}'


def test_an_empty_variable_holds_no_secret() -> None:
    refusal(json.dumps(with_secret("--hf-token=abc")).encode(), environ={"HF_TOKEN": ""})


def test_what_follows_a_masked_flag_is_kept() -> None:
    document = with_secret("--api-key=one", "-tp", "1")
    saved = read(document, environ={"VLLM_API_KEY": "one"})
    assert saved.serving["engine_args"] == ("-tp", "1", "--max-num-seqs=64")


def test_only_secrets_are_given_again() -> None:
    with pytest.raises(UsageError, match="--max-num-seqs: the arguments of a saved plan are fixed"):
        read(plain_document(), repeated=("--max-num-seqs", "8"))
