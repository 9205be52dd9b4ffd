"""The JSON of a deployment: the fields scripts rely on, valid against its schema, without secrets."""

import json
from dataclasses import replace

import jsonschema
import pytest

from gpuplan.cli.schema import schema_of
from gpuplan.domain.deployment import Actual, ContainerRole, Deployment, Load, Member, Prediction, State
from gpuplan.domain.fact import Fact, Severity
from gpuplan.present.deployment_document import deployment_document, dry_run_document
from gpuplan.present.document import text_of, width_of
from gpuplan.present.outcome_text import outcome_text
from gpuplan.present.plan_document import plain
from gpuplan.present.status_document import status_document
from gpuplan.units import GIB
from tests.unit.deploying.shapes import SECRETS, SHAPES

MEMBER = Member(
    host="h1",
    container="gpuplan-q-s0n0",
    id="ab",
    role=ContainerRole.SINGLE,
    state="running",
    gpus=("GPU-1",),
    gpu_indexes=(0,),
)
WELL = Deployment(
    name="q",
    state=State.RUNNING,
    model="Qwen/Qwen3-4B",
    served_name="qwen3",
    endpoint="http://10.0.0.1:40000",
    endpoints=("http://10.0.0.1:40000",),
    image="vllm/vllm-openai:v0.33.0",
    vllm_version="0.33.0",
    members=(MEMBER,),
    predicted=Prediction(
        weights_bytes=8 * GIB, kv_cache_bytes=10 * GIB, kv_cache_tokens=100_000, max_concurrency=2.5
    ),
    actual=Actual(
        weights_bytes=8 * GIB, kv_cache_bytes=11 * GIB, kv_cache_tokens=110_000, used_bytes=(("h1", 0, 5),)
    ),
    load=Load(running=1, waiting=0, kv_cache_share=0.12345),
    uptime_seconds=12,
)
BARE = Deployment(name="bare", state=State.PREPARING)
FACT = Fact(code="GP626", severity=Severity.ERROR, subject={"host": "h1"}, figures={})


def test_what_the_interface_names_is_there() -> None:
    document = deployment_document(WELL)
    assert document["schema_version"] == 1
    assert document["event"] == "deployment"
    assert {"name", "state", "endpoint", "model", "members", "predicted", "actual", "message"} <= set(
        document
    )
    assert {"host", "role", "rank", "container", "state", "gpus"} <= set(document["members"][0])
    assert document["actual"]["used"] == [{"host": "h1", "index": 0, "used_bytes": 5}]
    assert deployment_document(BARE)["actual"] is None
    assert json.loads(json.dumps(document)) == document


@pytest.mark.parametrize("facts", [(), (FACT,)])
def test_status_is_valid_against_the_schema(facts: tuple[Fact, ...]) -> None:
    document = plain(status_document([(WELL, facts), (BARE, ())], ()))
    jsonschema.validate(json.loads(json.dumps(document)), schema_of("deployment"))
    broken = json.loads(json.dumps(document))
    del broken["deployments"][0]["state"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema_of("deployment"))


def test_the_first_finding_is_the_message() -> None:
    document = deployment_document(replace(WELL, state=State.ERROR, message="ended"), (FACT,))
    assert document["message"] == document["findings"][0]["headline"] != "ended"


def test_a_secret_that_docker_repeats_is_masked() -> None:
    told = replace(
        WELL, message="bad HF_TOKEN=hf_abcdefgh", members=(replace(MEMBER, message="token=abcdefghij"),)
    )
    text = json.dumps(deployment_document(told))
    assert "hf_abcdefgh" not in text
    assert "abcdefghij" not in text


@pytest.mark.parametrize("name", SHAPES)
def test_a_dry_run_as_data(name: str) -> None:
    spec = SHAPES[name]()
    document = dry_run_document(spec)
    text = json.dumps(document)
    assert [item["container"] for item in document["containers"]] == [one.name for one in spec.containers]
    assert document["steps"][0]["step"] == "lock"
    assert "rivileged" not in text
    for value in (*SECRETS.values(), "planted-aws-value"):
        assert value not in text


@pytest.mark.parametrize("deployment", [WELL, BARE, replace(WELL, state=State.ERROR, message="x " * 90)])
def test_the_outcome_in_the_columns(deployment: Deployment) -> None:
    lines = text_of(outcome_text(deployment, 80)).splitlines()
    assert all(width_of(row) <= 80 or "curl" in row for row in lines)


def test_the_outcome_says_where_it_serves_and_how_well_it_was_foreseen() -> None:
    text = text_of(outcome_text(WELL, 100))
    assert text.startswith("q serves qwen3 at http://10.0.0.1:40000\n")
    assert "KV cache                           10.00 GiB     11.00 GiB   +10.0 %" in text
    assert "curl http://10.0.0.1:40000/v1/completions" in text
    assert "serves already, nothing was changed" in text_of(outcome_text(WELL, 100, changed=False))
    assert "curl" not in text_of(outcome_text(replace(WELL, state=State.ERROR), 100))
