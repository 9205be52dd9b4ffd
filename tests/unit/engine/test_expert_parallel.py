"""What spreading experts over replicas takes on a rank beside weights."""

from dataclasses import replace
from typing import Any

import pytest

from gpuplan.domain.model import Experts
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.expert_parallel import (
    balancing_bytes,
    batched_elements,
    exchange_bytes,
    gathered_bytes,
    limited_batch,
)
from gpuplan.engine.forward import forward_memory
from gpuplan.engine.rank_setting import RankSetting
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.engine.weights import Split
from gpuplan.units import GIB
from tests.fleets import profile

MODEL = "deepseek-ai__DeepSeek-R1"
HIDDEN, EXPERTS, MOE_LAYERS, WIDTH = 7168, 256, 58, 2048


def setting(data: int = 4, version: EngineVersion = DEFAULT, tokens: int = 256, **engine: Any) -> RankSetting:
    return RankSetting(
        version=version,
        engine=EngineArguments(enable_expert_parallel=True, data_parallel_size=data, **engine),
        parallelism=Parallelism(tensor=8, data=data, expert=True),
        stage=0,
        total_bytes=80 * GIB,
        device_name="NVIDIA H100 80GB HBM3",
        compute_capability="9.0",
        backend="cuda",
        unified=False,
        max_num_batched_tokens=tokens,
        max_num_seqs=256,
    )


def test_default_backend_holds_nothing_outside_torch() -> None:
    assert exchange_bytes(profile(MODEL), setting()) == (0, 0, 0)
    assert gathered_bytes(profile(MODEL), setting(tokens=8192)) == 2 * 4 * 8192 * HIDDEN * 2


@pytest.mark.parametrize("data", [1, 4])
def test_one_replica_exchanges_nothing(data: int) -> None:
    found = exchange_bytes(profile(MODEL), setting(data, all2all_backend="deepep_low_latency"))
    assert (found == (0, 0, 0)) is (data == 1)


def test_low_latency_buffers_hold_a_message_per_expert_and_token_twice_over() -> None:
    """DeepEP's size for 256 tokens, 256 experts of width 7168 is 3.6 GiB, sent and received in turns."""
    message = 2 * HIDDEN + 4 * (HIDDEN // 128)
    likely, least, most = exchange_bytes(profile(MODEL), setting(all2all_backend="deepep_low_latency"))
    assert least == 4 * 256 * EXPERTS * message
    assert likely == GIB + least < most


def test_high_throughput_takes_as_much_again_between_hosts() -> None:
    high = "deepep_high_throughput"
    inside = replace(setting(2, all2all_backend=high), parallelism=Parallelism(tensor=4, data=2, expert=True))
    assert exchange_bytes(profile(MODEL), inside)[0] == GIB
    assert exchange_bytes(profile(MODEL), setting(all2all_backend=high))[0] == 2 * GIB


@pytest.mark.parametrize(("version", "tokens"), [("0.19.1", None), ("0.20.0", 256), ("0.33.0", 256)])
def test_low_latency_backends_limit_the_batch(version: str, tokens: int | None) -> None:
    engine = setting(all2all_backend="deepep_low_latency").engine
    assert limited_batch(profile(MODEL), engine, EngineVersion.parse(version)) == tokens
    assert limited_batch(profile("Qwen__Qwen3-32B"), engine, EngineVersion.parse(version)) is None


def test_low_latency_kernels_work_on_a_batch_for_every_local_expert() -> None:
    (part, *_) = [
        part for kind in profile(MODEL).layer_kinds for part in kind.parts if isinstance(part, Experts)
    ]
    low = setting(all2all_backend="deepep_low_latency")
    assert batched_elements(part, low) == 8 * 256 * 32 * (HIDDEN + HIDDEN)
    assert batched_elements(part, setting()) is None


def test_rows_of_all_replicas_go_through_the_experts() -> None:
    one, four = (forward_memory(profile(MODEL), setting(data, tokens=4096)) for data in (1, 4))
    assert four.kept == 4 * one.kept


def test_rows_were_worked_on_in_parts_until_a_release_dropped_that() -> None:
    old, new = (
        forward_memory(profile(MODEL), setting(8, EngineVersion(0, minor), tokens=8192)) for minor in (17, 18)
    )
    assert new.kept == 2 * old.kept


def test_balancing_keeps_a_layer_s_experts_and_counts() -> None:
    target = profile(MODEL)
    split = Split(tensor=8, expert_ranks=32, redundant_experts=32)
    engine = EngineArguments(enable_eplb=True, enable_expert_parallel=True)
    counts = 1001 * MOE_LAYERS * (EXPERTS + 32) * 4
    weights = 9 * 3 * HIDDEN * WIDTH
    scales = weights // (128 * 128) * 4
    assert balancing_bytes(target, split, engine) == counts + weights + scales
    assert balancing_bytes(target, split, engine, version=EngineVersion(0, 11)) == counts
    assert balancing_bytes(target, split, EngineArguments()) == 0
    assert balancing_bytes(target, Split(tensor=8), engine) == 0
    assert balancing_bytes(profile("Qwen__Qwen3-32B"), split, engine) == 0
