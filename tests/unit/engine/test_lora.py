"""LoRA slots by hand-computed sizes."""

from typing import Any

from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.lora import lora_bytes
from gpuplan.engine.weights import Split
from tests.fleets import profile

MODEL = "Qwen__Qwen3-32B"
HIDDEN, WIDE, QUERY, KEY = 5120, 25600, 64 * 128, 8 * 128


def slots(tensor: int = 1, **arguments: Any) -> int:
    engine = EngineArguments(enable_lora=True, **arguments)
    return lora_bytes(profile(MODEL), Split(tensor=tensor, expert_tensor=tensor), engine)


def test_nothing_without_the_flag() -> None:
    assert lora_bytes(profile(MODEL), Split(), EngineArguments(max_loras=4)) == 0


def test_one_slot_of_rank_16() -> None:
    qkv = 3 * 16 * HIDDEN + 16 * (QUERY + 2 * KEY)
    out = 16 * QUERY + 16 * HIDDEN
    up = 2 * 16 * HIDDEN + 16 * 2 * WIDE
    down = 16 * WIDE + 16 * HIDDEN
    assert slots() == 64 * (qkv + out + up + down) * 2


def test_slots_and_ranks_multiply_and_ranks_are_rounded_up() -> None:
    assert slots(max_loras=3) == 3 * slots()
    assert slots(max_lora_rank=32) == 2 * slots()
    assert slots(max_lora_rank=17) == slots(max_lora_rank=32)


def test_tensor_parallel_divides_one_matrix_of_each_pair() -> None:
    assert slots() / 4 < slots(4) < slots()
    assert slots(4, fully_sharded_loras=True) * 4 == slots()


def test_every_expert_has_slots() -> None:
    engine = EngineArguments(enable_lora=True)
    dense = lora_bytes(profile("Qwen__Qwen3-32B"), Split(), engine)
    experts = lora_bytes(profile("Qwen__Qwen3-30B-A3B"), Split(), engine)
    assert experts > 5 * dense
    half = lora_bytes(profile("Qwen__Qwen3-30B-A3B"), Split(tensor=2, expert_ranks=2), engine)
    assert half < experts * 0.6
