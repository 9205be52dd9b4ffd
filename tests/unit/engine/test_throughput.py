"""The roofline: what makes a step longer, what bounds it, when there is no telling."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.hardware import Accelerator
from gpuplan.domain.model import CacheKind, ModelProfile
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.throughput import Bound, NoThroughput, Throughput
from gpuplan.engine.architectures import describe
from gpuplan.engine.arguments import parse
from gpuplan.engine.kv_pages import CacheSettings
from gpuplan.engine.layer_work import Arithmetic, attention_work, layer_work, operations_per_second
from gpuplan.engine.links import Topology, all_reduce_seconds, exchange_seconds
from gpuplan.engine.throughput import WEIGHTS_SHARE, Serving, throughput
from gpuplan.engine.versions import version_of
from gpuplan.engine.weights import Split
from gpuplan.sources.catalogue import accelerators, models

CONFIGS = Path(models.__file__).parent / "configs"
VERSION = version_of("0.20.0")
ALONE = Topology()


@cache
def profile(name: str) -> ModelProfile:
    return describe(name, json.loads((CONFIGS / f"{name}.json").read_text())["config"])


DENSE = profile("Qwen__Qwen3-32B")
EXPERTS = profile("Qwen__Qwen3-30B-A3B")
LATENT = profile("deepseek-ai__DeepSeek-R1")


def serving(
    model: ModelProfile = DENSE, card: str = "H100-80GB", arguments: str = "", **given: Any
) -> Serving:
    parallelism = given.pop("parallelism", Parallelism())
    fields = {
        "profile": model,
        "engine": parse([arguments], version=VERSION),
        "version": VERSION,
        "parallelism": parallelism,
        "cards": (accelerators.find(card),) * parallelism.world_size,
        "topology": ALONE,
        "context": 8192,
        "users": 1,
        "batched_tokens": 8192,
        "sequences": 256,
        "held": 16.0,
    }
    return Serving(**{**fields, **given})


def told(asked: Serving) -> Throughput:
    found = throughput(asked)
    assert isinstance(found, Throughput)
    return found


def per_user(asked: Serving) -> float:
    return told(asked).decode.per_user


def test_one_user_of_a_dense_model_reads_the_weights_once_per_token() -> None:
    found = told(serving(context=1))
    card = accelerators.find("H100-80GB")
    assert card.bandwidth_bytes_per_second is not None
    read = 64 * layer_work(DENSE.layer_kinds[0], Split()).products[0].weight_bytes + 2 * 151936 * 5120
    least = read / card.bandwidth_bytes_per_second / WEIGHTS_SHARE
    assert 1.0 <= 1 / found.decode.per_user / least <= 1.2
    assert found.decode.bound is Bound.MEMORY


def test_more_users_share_the_weights() -> None:
    one, eight = told(serving()), told(serving(users=8))
    assert eight.decode.per_user < one.decode.per_user
    assert eight.decode.total > 4 * one.decode.total
    assert eight.decode.users == 8


def test_users_beyond_what_a_step_takes_are_not_answered_at_once() -> None:
    few, many = told(serving(users=64, sequences=64)), told(serving(users=640, sequences=64))
    assert many.decode.total == pytest.approx(few.decode.total)


def test_longer_contexts_are_slower_windows_less_so() -> None:
    assert per_user(serving(context=32768)) < 0.98 * per_user(serving(context=1024))
    windows = profile("openai__gpt-oss-20b")
    settings = CacheSettings(version=VERSION)
    sliding = next(
        layer for layer in windows.layer_kinds if any(one.kind is CacheKind.SLIDING for one in layer.caches)
    )
    short, long = (attention_work(sliding, windows, settings, tokens) for tokens in (128, 32768))
    assert short.read_bytes == long.read_bytes > 0


def test_a_latent_cache_is_read_whole_by_every_rank() -> None:
    layer = LATENT.layer_kinds[-1]
    one, eight = (
        attention_work(layer, LATENT, CacheSettings(version=VERSION, tensor=ranks), 4096) for ranks in (1, 8)
    )
    assert one.read_bytes == eight.read_bytes
    assert eight.operations == pytest.approx(one.operations / 8)


def test_an_eight_bit_cache_is_read_in_half_the_time() -> None:
    settings = CacheSettings(version=VERSION)
    eight = replace(settings, engine=parse(["--kv-cache-dtype fp8"], version=VERSION))
    layer = DENSE.layer_kinds[0]
    plain = attention_work(layer, DENSE, settings, 4096).read_bytes
    assert attention_work(layer, DENSE, eight, 4096).read_bytes == plain / 2


def test_experts_are_read_as_far_as_tokens_choose_them() -> None:
    work = next(
        layer_work(layer, Split()) for layer in EXPERTS.layer_kinds if layer_work(layer, Split()).experts
    )
    experts = work.experts[0]
    assert experts.read_share(1) == pytest.approx(8 / 128)
    assert 0.35 < experts.read_share(8) < 0.45
    assert experts.read_share(1000) == pytest.approx(1)
    assert per_user(serving(EXPERTS)) > 3 * per_user(serving(DENSE))


def test_tensor_parallel_ranks_divide_the_work_and_pay_for_the_exchange() -> None:
    two = serving(parallelism=Parallelism(tensor=2))
    assert per_user(serving()) < per_user(two) < 2 * per_user(serving())
    slow = replace(two, topology=Topology(link="pcie"))
    far = replace(two, topology=Topology(hosts=2, network_bytes_per_second=1_250_000_000, rdma=False))
    assert per_user(two) > per_user(slow) > per_user(far)
    assert told(replace(far, users=64)).decode.bound is Bound.LINKS


def test_pipeline_stages_do_not_speed_up_one_user_but_several() -> None:
    staged = serving(parallelism=Parallelism(pipeline=2))
    assert per_user(staged) < per_user(serving())
    assert told(replace(staged, users=64)).decode.total > told(serving(users=64)).decode.total


def test_replicas_add_up() -> None:
    one = told(serving(users=8))
    three = told(serving(users=24, parallelism=Parallelism(data=3)))
    assert three.decode.per_user == pytest.approx(one.decode.per_user)
    assert three.decode.total == pytest.approx(3 * one.decode.total)
    assert three.prefill_tokens_per_second == pytest.approx(3 * one.prefill_tokens_per_second)
    assert three.first_token_seconds == pytest.approx(one.first_token_seconds)


def test_replicas_that_hold_the_experts_together_exchange_tokens() -> None:
    shape = Parallelism(data=8, expert=True)
    apart = serving(EXPERTS, parallelism=shape, users=64)
    together = replace(apart, together=True)
    first, second = (dict(told(one).inputs) for one in (apart, together))
    assert "links, ms of a step" not in first
    assert float(second["links, ms of a step"]) > 0
    assert float(second["memory, ms of a step"]) < float(first["memory, ms of a step"])


def test_eager_mode_is_slower_the_smaller_the_model() -> None:
    small = profile("Qwen__Qwen3-0.6B")
    lost = per_user(serving(small)) / per_user(serving(small, arguments="--enforce-eager"))
    kept = per_user(serving()) / per_user(serving(arguments="--enforce-eager"))
    assert lost > 2
    assert 1 <= kept < 1.3
    assert told(serving(small, arguments="--enforce-eager")).decode.bound is Bound.LAUNCHES


def test_offloaded_weights_are_read_through_the_host() -> None:
    found = told(serving(arguments="--cpu-offload-gb 30"))
    assert found.decode.bound is Bound.OFFLOAD
    assert found.decode.per_user < per_user(serving()) / 2


def test_prompts_are_bound_by_compute_and_take_as_long_as_they_are() -> None:
    short, long = told(serving(context=2048)), told(serving(context=32768))
    assert short.prefill_bound is Bound.COMPUTE
    assert 16 < long.first_token_seconds / short.first_token_seconds < 40
    faster = told(serving(profile("Qwen__Qwen3-32B-FP8"), context=2048))
    assert faster.prefill_tokens_per_second > 1.4 * short.prefill_tokens_per_second


def test_the_slowest_card_of_a_group_sets_the_pace() -> None:
    slow, fast = accelerators.find("A100-80GB"), accelerators.find("H100-80GB")
    shape = Parallelism(tensor=2)
    mixed = serving(parallelism=shape, cards=(fast, slow))
    assert per_user(mixed) == pytest.approx(
        per_user(serving(parallelism=shape, cards=(slow, slow))), rel=0.05
    )


def test_speculative_decoding_is_said_not_to_be_counted() -> None:
    plain = told(serving())
    found = told(serving(arguments='--speculative-config {"method":"ngram","num_speculative_tokens":3}'))
    assert found.decode == plain.decode
    assert not plain.notes
    assert "speculative" in found.notes[0]


def test_what_is_not_known_is_no_number() -> None:
    card = accelerators.find("H100-80GB")

    def reason(asked: Serving) -> str:
        found = throughput(asked)
        assert isinstance(found, NoThroughput)
        return found.reason

    def on(other: Accelerator) -> str:
        return reason(serving(cards=(other,)))

    assert (
        on(replace(card, bandwidth_bytes_per_second=None)) == "the memory bandwidth of H100-80GB is not known"
    )
    assert "peak operations" in on(replace(card, half_flops=None))
    assert "generates no tokens" in reason(serving(replace(DENSE, pooling=True)))
    assert "layers" in reason(serving(replace(DENSE, recognised=False)))


@pytest.mark.parametrize(
    ("card", "arithmetic", "teraflops"),
    [
        ("A100-80GB", Arithmetic.FLOAT8, 312),
        ("A100-80GB", Arithmetic.INTEGER8, 624),
        ("H100-80GB", Arithmetic.FLOAT8, 1978.9),
        ("H100-80GB", Arithmetic.FLOAT4, 989.4),
        ("B200", Arithmetic.FLOAT4, 9000),
        ("V100-32GB", Arithmetic.INTEGER8, 125),
    ],
)
def test_the_peak_is_that_of_the_units_a_card_has(
    card: str, arithmetic: Arithmetic, teraflops: float
) -> None:
    assert operations_per_second(accelerators.find(card), arithmetic) == pytest.approx(teraflops * 1e12)


def test_exchanges_cost_latency_then_bytes() -> None:
    card = accelerators.find("H100-80GB")
    assert all_reduce_seconds(1e6, 1, 1, card, ALONE) == 0
    small, large = (all_reduce_seconds(size, 8, 1, card, ALONE) for size in (1e3, 1e9))
    assert small < 15e-6
    assert large > 1e-3
    assert all_reduce_seconds(1e3, 8, 1, card, Topology(link="pcie")) > 3 * small
    assert all_reduce_seconds(1e3, 8, 2, card, Topology(hosts=2)) > 3 * small
    assert exchange_seconds(1e6, 1, 1, card, ALONE) == 0 < exchange_seconds(1e6, 8, 1, card, ALONE)
