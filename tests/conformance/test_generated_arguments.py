"""Every command line gpuplan makes was accepted by vLLM's own parser and configuration, and means what the plan says.

The answers are recorded (`tests/data/vllm-accepts.jsonl.gz`): `python -m tests.tools.record_vllm_answers ENVIRONMENT
--write --changed` asks again about what has changed, in an environment that has the release in question.
"""

from functools import cache
from typing import Any

import pytest

from gpuplan.deploying.compile import compile_deployment
from gpuplan.deploying.request import CompileRequest
from gpuplan.domain.deployment import ContainerSpec, DeploymentSpec, Launch, Server
from tests.conformance.argument_cases import CASES, request_of, serving
from tests.tools.record_vllm_answers import question_of, recorded, without_answers

RECORD = "record it again: python -m tests.tools.record_vllm_answers ENVIRONMENT --write --changed"
MEETING = {
    Launch.NATIVE_MP: ("master_addr", "master_port"),
    Launch.NATIVE_NESTED: ("master_addr", "master_port", "data_parallel_master_ip", "data_parallel_rpc_port"),
    Launch.NATIVE_DP: ("data_parallel_master_ip", "data_parallel_rpc_port"),
}
"""Where the members of a server find each other."""


@cache
def known() -> dict[str, dict[str, Any]]:
    return recorded()


def accepted() -> list[str]:
    return [name for name, entry in known().items() if "containers" in entry]


def answer_to(name: str, container: ContainerSpec) -> dict[str, Any]:
    found: dict[str, Any] = known()[name]["containers"][container.name]["answer"]
    assert found["accepted"], f"{container.name}: {found['stage']}: {found['error']}"
    return found


def test_enough_was_asked() -> None:
    assert len(accepted()) >= 60
    assert len({CASES[name].version for name in accepted()}) >= 5


@pytest.mark.parametrize("name", CASES)
def test_the_command_line_is_the_one_that_was_asked_about(name: str) -> None:
    assert name in known(), RECORD
    assert question_of(name) == without_answers(known()[name]), RECORD


@pytest.mark.parametrize("name", accepted())
def test_vllm_accepts_it_and_means_what_is_planned(name: str) -> None:
    request = request_of(name)
    spec = compile_deployment(request)
    for server in spec.servers:
        members = [one for one in serving(spec) if one.server == server.number]
        for container in members:
            answer = answer_to(name, container)
            found = {**answer["parallel"], **answer["engine"]}
            expected = {**_layout(request, server, container, len(members)), **_limits(request, spec)}
            assert {what: found.get(what) for what in expected} == expected, container.name
            executors = _executors(server.launch, request.candidate.parallelism.world_size, _ranks(request))
            assert found["distributed_executor_backend"] in executors, container.name
            headless = answer["launcher"] == "run_headless"
            assert headless is (container.rank > 0), container.name
        _agree(server, [answer_to(name, one)["parallel"] for one in members])


def _ranks(request: CompileRequest) -> int:
    """Data-parallel ranks of one server: a dense model's replicas are servers of their own (S3.2)."""
    return request.workload.engine.data_parallel_size if request.profile.expert_count else 1


def _layout(
    request: CompileRequest, server: Server, container: ContainerSpec, members: int
) -> dict[str, object]:
    """Fields of vLLM's ParallelConfig as the placement has them."""
    shape, ranks = request.candidate.parallelism, _ranks(request)
    expected: dict[str, object] = {
        "tensor_parallel_size": shape.tensor,
        "pipeline_parallel_size": shape.pipeline,
        "enable_expert_parallel": shape.expert,
        "data_parallel_size": ranks,
        "world_size": shape.world_size,
    }
    if server.launch in {Launch.NATIVE_MP, Launch.NATIVE_NESTED}:
        expected |= {"nnodes": members, "node_rank": container.rank}
    return expected


def _executors(launch: Launch, world: int, ranks: int) -> tuple[str, ...]:
    """Of data-parallel replicas of one GPU each vLLM has either, by its release."""
    match launch:
        case Launch.RAY:
            return ("ray",)
        case Launch.NATIVE_MP | Launch.NATIVE_NESTED:
            return ("mp",)
        case Launch.SINGLE | Launch.NATIVE_DP:
            return ("mp",) if world > 1 else ("uni", "mp") if ranks > 1 else ("uni",)


def _limits(request: CompileRequest, spec: DeploymentSpec) -> dict[str, object]:
    """What the prediction rests on."""
    memory = request.candidate.memory
    expected: dict[str, object] = {}
    if spec.predicted.gpu_memory_utilization is not None:
        expected["gpu_memory_utilization"] = spec.predicted.gpu_memory_utilization
    if memory is not None:
        expected |= {
            "max_num_seqs": memory.max_num_seqs,
            "max_num_batched_tokens": memory.max_num_batched_tokens,
        }
        if not request.profile.pooling:
            expected["max_model_len"] = memory.max_model_len
    return expected


def _agree(server: Server, members: list[dict[str, Any]]) -> None:
    """The members meet in one place, and together hold every data-parallel rank once."""
    meeting = MEETING.get(server.launch, ())
    assert len({tuple(one[name] for name in meeting) for one in members}) == 1
    if server.launch is Launch.NATIVE_DP:
        held = [
            one["data_parallel_rank"] + offset
            for one in members
            for offset in range(one["data_parallel_size_local"])
        ]
        assert sorted(held) == list(range(members[0]["data_parallel_size"]))
