"""Loading as the estimate shows it: LoRA slots, ranges where the card is unknown, and cards that loading does not fit."""

from pathlib import Path

from gpuplan.domain.memory import EngineAnswer, RankMemory, StartCheck, Term
from gpuplan.operations.estimate import make_estimate
from gpuplan.operations.plan import ServingOptions
from gpuplan.units import GIB

CONFIGS = Path(__file__).parents[2] / "data" / "configs"


def estimated(
    model: str, gpu: str, *arguments: str, version: str = "0.33.0"
) -> tuple[RankMemory, EngineAnswer]:
    options = ServingOptions(engine_args=arguments, vllm_version=version)
    memory = make_estimate(str(CONFIGS / f"{model}.json"), gpu, None, options).candidate.memory
    assert memory is not None
    return memory.ranks[0], memory.engine


def part(term: Term, name: str) -> int:
    return int(dict(term.inputs).get(name, 0))


def test_lora_slots_are_counted_while_loading() -> None:
    plain, _ = estimated("Qwen__Qwen3-8B", "H100")
    slots, _ = estimated("Qwen__Qwen3-8B", "H100", "--enable-lora")
    assert part(plain.weights_extra, "LoRA slots") == 0
    assert part(slots.weights_extra, "LoRA slots") > 64 * 2**20
    assert slots.kv_cache_bytes < plain.kv_cache_bytes


def test_a_known_card_has_one_kernel() -> None:
    rank, _ = estimated("openai__gpt-oss-120b", "H100")
    assert (rank.weights_extra.low, rank.weights_extra.high) == (None, None)


def test_an_unknown_card_may_have_any_kernel() -> None:
    """90 GiB is no card's size: the kernels of every generation are possible."""
    rank, _ = estimated("openai__gpt-oss-120b", "custom=90GiB")
    hopper, _ = estimated("openai__gpt-oss-120b", "H100")
    ampere, _ = estimated("openai__gpt-oss-120b", "A100-80GB")
    for known in (hopper, ampere):
        loaded = known.weights.bytes + known.weights_extra.bytes
        assert rank.weights.least + rank.weights_extra.least <= loaded
        assert loaded <= rank.weights.most + rank.weights_extra.most
    assert rank.weights_extra.most > rank.weights_extra.least


def test_unquantized_dense_weights_have_no_range() -> None:
    rank, _ = estimated("Qwen__Qwen3-8B", "custom=90GiB")
    assert rank.weights_extra.least == rank.weights_extra.most


def test_weights_larger_than_the_card_end_while_loading() -> None:
    _, answer = estimated("Qwen__Qwen3-32B", "L4")
    assert not answer.starts
    assert answer.check is StartCheck.LOADING
    assert answer.error is not None
    assert "out of memory" in answer.error


def test_quantizing_while_loading_needs_the_whole_model_before_0_16() -> None:
    """61 GiB unquantized on 44.4 GiB, of which 31 GiB are left."""
    arguments = ("--quantization", "fp8", "--max-model-len", "4096")
    early, refused = estimated("Qwen__Qwen3-32B", "L40S", *arguments, version="0.14.1")
    late, accepted = estimated("Qwen__Qwen3-32B", "L40S", *arguments)
    assert refused.check is StartCheck.LOADING
    assert accepted.starts
    assert late.loading_peak_bytes < GIB < early.loading_peak_bytes
