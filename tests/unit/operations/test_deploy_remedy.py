"""A failure that is a matter of fit is planned again; what the plan says of the change is told, fit or not."""

import os
from pathlib import Path

import pytest

from gpuplan.deploying.diagnose import diagnose
from gpuplan.deploying.diagnosis import MemberEvidence
from gpuplan.operations.deploy_prepare import Prepared, look
from gpuplan.operations.deploy_remedy import flags_of, replanned
from gpuplan.operations.deploy_request import DeployRequest
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.plan import ServingOptions
from gpuplan.present.findings import word

ROOT = Path(__file__).parents[3]
MODEL = "tests/data/configs/Qwen__Qwen3-32B.json"
TOO_LONG = (
    "ValueError: To serve at least one request with the model's max seq len (27488), (7.21 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (5.00 GiB). Based on the available memory, the estimated "
    "maximum model length is {fitting}. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
    "initializing the engine."
)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    fleet = FleetOptions(
        environ=os.environ, cwd=ROOT, inventory=ROOT / "inventory.example.yaml", no_probe=True
    )
    return look(DeployRequest(reference=str(ROOT / MODEL), fleet=fleet, serving=ServingOptions()))


def failed(prepared: Prepared, line: str) -> MemberEvidence:
    first = prepared.spec.containers[0]
    return MemberEvidence(
        host=first.host, container=first.name, state="exited", exit_code=1, lines=((1.0, line),)
    )


def test_a_shorter_context_is_planned_on_the_same_gpus(prepared: Prepared) -> None:
    found = diagnose((failed(prepared, TOO_LONG.format(fitting=19056)),), prepared.spec.predicted)
    fact = replanned(prepared, found)
    assert fact is not None
    assert fact.figures["flags"] == ("--max-model-len", "19056")
    assert fact.figures["fits"] is True
    assert fact.figures["max_model_len"] == 19056
    told = word(fact)
    assert "19,056" in told.headline
    assert told.hint is not None
    assert "-- --max-model-len 19056" in told.hint


def test_a_change_that_does_not_fit_is_not_recommended(prepared: Prepared) -> None:
    found = diagnose((failed(prepared, TOO_LONG.format(fitting=40000)),), prepared.spec.predicted)
    fact = replanned(prepared, found)
    assert fact is not None
    assert fact.figures["fits"] is False
    assert "does not fit" in word(fact).headline


def test_what_no_change_mends_has_no_remedy(prepared: Prepared) -> None:
    found = diagnose((failed(prepared, "ValueError: nobody has described this"),), prepared.spec.predicted)
    assert found.root is not None
    assert replanned(prepared, found) is None


def test_changes_are_written_as_the_engine_reads_them() -> None:
    change = {"enforce_eager": True, "gpu_memory_utilization": 0.85, "executor": "mp"}
    assert flags_of(change) == ("--enforce-eager", "--gpu-memory-utilization", "0.85")
