"""LoRA slots by hand-computed sizes."""

from typing import Any

from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.lora import lora_bytes
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Split
from tests.fleets import profile

MODEL = "Qwen__Qwen3-32B"
HIDDEN, WIDE, QUERY, KEY = 5120, 25600, 64 * 128, 8 * 128


BEFORE_VOCABULARY = EngineVersion(0, 15)


def slots(tensor: int = 1, version: EngineVersion = BEFORE_VOCABULARY, **arguments: Any) -> int:
    engine = EngineArguments(enable_lora=True, **arguments)
    return lora_bytes(profile(MODEL), Split(tensor=tensor, expert_tensor=tensor), engine, version=version)


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


def test_slots_of_the_vocabulary_span_all_of_it_on_every_rank() -> None:
    """Input table and logits, A and B each; beside them the order of the sharded vocabulary."""
    tables = 2 * 16 * (151936 + HIDDEN) * 2
    assert slots(version=EngineVersion(0, 16)) == slots() + tables
    assert slots(4, version=EngineVersion(0, 16)) == slots(4) + tables + 151936 * 8


def test_a_stage_between_has_no_vocabulary() -> None:
    engine, version = EngineArguments(enable_lora=True), EngineVersion(0, 22)
    sizes = [
        lora_bytes(profile(MODEL), Split(), engine, stage=stage, stages=4, version=version)
        for stage in range(4)
    ]
    assert sizes[0] == sizes[3] > sizes[1] == sizes[2]


def test_models_without_embedding_modules_have_none() -> None:
    engine = EngineArguments(enable_lora=True)
    qwen2 = profile("Qwen__Qwen2.5-7B-Instruct")
    early, late = (lora_bytes(qwen2, Split(), engine, version=EngineVersion(0, at)) for at in (10, 33))
    assert early == late > 0


def experts_slots(name: str, split: Split, version: str = "0.33.0", **arguments: Any) -> int:
    """Bytes of the slots of routed experts alone: what the release before they came does not have."""
    engine = EngineArguments(enable_lora=True, **arguments)
    without = lora_bytes(profile(name), split, engine, version=EngineVersion(0, 11))
    return lora_bytes(profile(name), split, engine, version=EngineVersion.parse(version)) - without


def test_slots_of_experts_by_hand() -> None:
    """Of 128 experts in 48 layers: A and B of gate and up, and of down; A of gate and up once where a checkpoint stacks them."""
    rank, hidden, width = 16, 2048, 768
    one = rank * (2 * hidden + 2 * width + width + hidden)
    assert experts_slots("Qwen__Qwen3-30B-A3B", Split(), "0.12.0") == 48 * 128 * one * 2
    stacked, local = rank * (2880 + 2 * 2880 + 2880 + 2880), 24 * 32
    assert experts_slots("openai__gpt-oss-20b", Split(), "0.12.0") == local * stacked * 2
    assert experts_slots("Qwen__Qwen3-30B-A3B", Split(), "0.11.0") == 0


def test_sharded_slots_of_experts_divide_the_other_side_too() -> None:
    split = Split(tensor=4, expert_tensor=4)
    sharded = experts_slots("Qwen__Qwen3-30B-A3B", split, "0.12.0", fully_sharded_loras=True)
    assert sharded * 4 == experts_slots("Qwen__Qwen3-30B-A3B", Split(), "0.12.0")


def test_type_of_the_slots_is_the_model_s_unless_it_is_named() -> None:
    assert slots(lora_dtype="float16") == slots(lora_dtype="auto") == slots()
