"""Hardware known by its size alone: the likeliest kind decides the figures, all kinds the ranges, and users are told."""

import json
from pathlib import Path

import pytest

from gpuplan.domain.memory import MemoryEstimate, StartCheck
from gpuplan.operations.estimate import Estimate, make_estimate
from gpuplan.operations.plan import ServingOptions
from gpuplan.present.findings import word

CONFIGS = Path(__file__).parents[2] / "data" / "configs"
SMALL = str(CONFIGS / "Qwen__Qwen3-4B.json")


def made(gpu: str, *arguments: str, model: str = SMALL, version: str = "0.33.0") -> Estimate:
    return make_estimate(model, gpu, None, ServingOptions(engine_args=arguments, vllm_version=version))


def memory(estimate: Estimate) -> MemoryEstimate:
    found = estimate.candidate.memory
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("size", "name"),
    [("79.18", "H100-80GB"), ("79.25", "A100-80GB"), ("119.63", "GB10"), ("23.52", "RTX-4090")],
)
def test_a_size_alone_gives_the_figures_of_the_named_card(size: str, name: str) -> None:
    alone, named = memory(made(f"custom={size}GiB")), memory(made(f"{name}={size}GiB"))
    assert alone.ranks == named.ranks
    assert (alone.max_num_batched_tokens, alone.max_num_seqs) == (
        named.max_num_batched_tokens,
        named.max_num_seqs,
    )


def test_it_is_told_as_an_assumption_and_the_name_stays() -> None:
    estimate = made("mine=79.18GiB")
    (told,) = [fact for fact in estimate.facts if fact.code == "GP502"]
    text = word(told).headline
    assert "79.18 GiB is what H100-80GB reports" in text
    assert "name the card with --gpu" in text
    assert estimate.hardware["name"] == "mine"
    assert estimate.hardware["taken_for"] == ["H100-80GB"]


@pytest.mark.parametrize("gpu", ["H100-80GB", "custom=60GiB"])
def test_nothing_is_told_where_nothing_is_assumed(gpu: str) -> None:
    estimate = made(gpu)
    assert not [fact for fact in estimate.facts if fact.code == "GP502"]
    assert estimate.hardware["taken_for"] == []


def test_where_several_kinds_report_the_size_the_ranges_cover_them() -> None:
    """23.53 GiB: an RTX 4500 Ada or a TITAN RTX, which is too old for the newer kernels."""
    span, ada, titan = (
        memory(made(f"{name}=23.53GiB")).ranks[0] for name in ("custom", "RTX-4500-ADA", "TITAN-RTX")
    )
    assert span.kv_cache_bytes == ada.kv_cache_bytes
    assert span.kv_cache_low <= min(ada.kv_cache_low, titan.kv_cache_low)
    assert span.kv_cache_high >= max(ada.kv_cache_high, titan.kv_cache_high)


def test_gb10_is_of_the_small_tier_in_every_release() -> None:
    for version in ("0.13.0", "0.26.0", "0.33.0"):
        batch = memory(made("custom=121.69GiB", version=version))
        assert (batch.max_num_batched_tokens, batch.max_num_seqs) == (2048, 256)


def test_checks_on_shared_memory_hold_on_the_safe_end(tmp_path: Path) -> None:
    """What other processes of the host take while the engine measures, a plan cannot know."""
    config = json.loads(Path(SMALL).read_text())
    model = tmp_path / "config.json"
    model.write_text(json.dumps(config | {"max_position_embeddings": 10_000_000}))
    rank = memory(made("GB10", "--max-model-len", "40960", model=str(model))).ranks[0]
    per_token = rank.kv_needed_bytes / 40960
    between = int((rank.kv_cache_low + rank.kv_cache_bytes) / 2 / per_token)
    asked = ("--max-model-len", str(between))
    shared = memory(made("GB10", *asked, model=str(model))).engine
    own = memory(made("custom=119.4GiB", *asked, model=str(model))).engine
    assert (shared.starts, shared.check) == (False, StartCheck.CONTEXT)
    assert own.starts


def test_releases_that_count_page_cache_as_used_may_lose_the_checkpoint_to_it() -> None:
    """Up to 0.11.0 free memory was what nobody uses, on shared memory too."""
    old, new = (memory(made("GB10", version=version)).ranks[0] for version in ("0.11.0", "0.11.1"))
    assert old.non_torch.bytes == new.non_torch.bytes
    assert old.non_torch.most - new.non_torch.most == pytest.approx(old.weights.bytes, rel=0.001)


def test_an_apu_under_rocm_does_not_lose_what_its_host_takes() -> None:
    apu, gb10 = (memory(made(name)).ranks[0] for name in ("RYZEN-AI-MAX-395", "GB10"))
    assert apu.non_torch.most < gb10.non_torch.bytes
