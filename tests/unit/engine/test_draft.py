"""Draft models with a checkpoint of their own, by hand-computed sizes."""

from dataclasses import replace
from typing import Any

import pytest

from gpuplan.domain.model import Draft, ModelProfile
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.architectures import describe
from gpuplan.engine.divisibility import violations
from gpuplan.engine.draft import (
    assumed_draft,
    draft_buffers,
    draft_named,
    held_tables,
    method_of,
    settled_config,
    states_read,
    with_draft,
)
from gpuplan.engine.kv_cache import CacheSettings, geometry
from gpuplan.engine.rank_setting import RankSetting
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.units import GIB
from tests.fleets import profile

TARGET = "Qwen__Qwen3-32B"
HIDDEN, WIDE, HEADS, KEYS, SIZE, ROWS, SHORT = 5120, 25600, 64, 8, 128, 151936, 32000
HEAD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": WIDE,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEYS,
    "head_dim": SIZE,
    "num_hidden_layers": 1,
    "vocab_size": ROWS,
    "draft_vocab_size": SHORT,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
LAYER = 2 * HIDDEN * (HEADS + 2 * KEYS) * SIZE + HEADS * SIZE * HIDDEN + 3 * HIDDEN * WIDE + 3 * HIDDEN
OUTSIDE = 3 * HIDDEN * HIDDEN + HIDDEN
ROTARY = 2048 * SIZE
TABLE = SHORT * 8
EMBEDDING = ROWS * HIDDEN


def drafted(
    method: str = "eagle3",
    holds: frozenset[str] | None = frozenset({"lm_head"}),
    config: dict[str, Any] | None = None,
    **changed: Any,
) -> ModelProfile:
    described = describe("draft", {**(config or HEAD), **changed})
    return replace(
        profile(TARGET), draft=Draft(name="draft", method=method, profile=described, states=3, holds=holds)
    )


def added(
    target: ModelProfile,
    version: EngineVersion = DEFAULT,
    *,
    stages: int = 1,
    stage: int | None = None,
    tensor: int = 1,
) -> int:
    """Bytes the draft adds on a rank of a stage, the last by default."""
    whole = with_draft(target, version, stages)
    at = stages - 1 if stage is None else stage
    split = Split(tensor=tensor, expert_tensor=tensor)
    with_it = rank_weights(whole, split, stage=at, stages=stages, draft_layers=len(whole.draft_order))
    return with_it.parameters - rank_weights(whole, split, stage=at, stages=stages).parameters


def test_eagle3_adds_its_layer_its_projection_and_its_own_head() -> None:
    assert added(drafted()) == 2 * (LAYER + OUTSIDE + SHORT * HIDDEN + ROTARY) + TABLE


def test_nothing_is_added_without_a_draft_of_known_size() -> None:
    target = profile(TARGET)
    assert with_draft(target, DEFAULT, 1) == target
    unknown = replace(target, draft=Draft(name="x", method="dspark", profile=None, missing="offline"))
    assert with_draft(unknown, DEFAULT, 1) == unknown


def test_head_that_the_checkpoint_lacks_is_the_target_s() -> None:
    without = added(drafted(holds=frozenset(), draft_vocab_size=ROWS))
    assert without == 2 * (LAYER + OUTSIDE + ROTARY)
    assert added(drafted(draft_vocab_size=ROWS)) == without + 2 * EMBEDDING


@pytest.mark.parametrize(
    ("version", "head"),
    [("0.9.2", 1), ("0.10.2", 1), ("0.11.0", 0), ("0.11.1", 1)],
)
def test_head_of_the_target_s_shape_was_shared_by_one_release(version: str, head: int) -> None:
    found = added(drafted(draft_vocab_size=ROWS), EngineVersion.parse(version))
    assert found == 2 * (LAYER + OUTSIDE + ROTARY + head * EMBEDDING)


def test_embedding_of_another_width_is_the_draft_s_own() -> None:
    narrow = drafted(
        hidden_size=4096, target_hidden_size=HIDDEN, holds=frozenset({"embed_tokens", "lm_head"})
    )
    inner = 2 * 4096 * (HEADS + 2 * KEYS) * SIZE + HEADS * SIZE * 4096 + 3 * 4096 * WIDE + 3 * 4096
    numbers = inner + 3 * HIDDEN * 4096 + 4096 + SHORT * 4096 + ROTARY + ROWS * 4096
    assert added(narrow) == 2 * numbers + TABLE


def test_only_the_last_stage_holds_it_with_an_embedding_of_its_own() -> None:
    assert added(drafted(), stages=2, stage=0) == 0
    assert added(drafted(), stages=2) == added(drafted()) + 2 * EMBEDDING


def test_ranks_divide_it_whatever_size_it_was_given() -> None:
    replicated = OUTSIDE + 3 * HIDDEN + ROTARY
    divided = LAYER - 3 * HIDDEN + SHORT * HIDDEN
    assert added(drafted(), tensor=4) == 2 * (replicated + divided // 4) + TABLE


def test_plain_draft_model_shares_nothing() -> None:
    small = describe("Qwen/Qwen3-30B-A3B", {**HEAD, "architectures": ["LlamaForCausalLM"]})
    target = replace(
        profile(TARGET), draft=Draft(name="small", method="draft_model", profile=small, holds=None)
    )
    assert added(target) == rank_weights(small, Split()).parameters + 2 * ROTARY


def test_its_layers_are_grouped_with_the_target_s() -> None:
    """gpt-oss: twelve sliding and thirteen full layers, so a place of every block's sliding half stands empty."""
    base = profile("openai__gpt-oss-20b")
    head = {**HEAD, "hidden_size": 2880, "head_dim": 64, "intermediate_size": 17280, "vocab_size": 201088}
    target = replace(base, draft=Draft(name="x", method="eagle3", profile=describe("x", head), states=3))
    whole = with_draft(target, DEFAULT, 1)
    (alone,) = geometry(base, CacheSettings(version=DEFAULT), stages=1)
    (both,) = geometry(whole, CacheSettings(version=DEFAULT, draft_layers=len(whole.draft_order)), stages=1)
    assert [(len(group.members), group.padding) for group in both.groups] == [(12, 1), (13, 0)]
    assert both.block_bytes * 12 == alone.block_bytes * 13


def test_what_the_draft_cannot_be_divided_by_is_refused() -> None:
    odd = drafted(num_attention_heads=60, num_key_value_heads=4)
    assert not violations(replace(odd, draft=None), Parallelism(tensor=8))
    (first, *_) = violations(odd, Parallelism(tensor=8))
    assert first.part.startswith("draft model draft:")
    assert not violations(odd, Parallelism(tensor=4))


def test_assumed_draft_is_as_large_as_published_ones() -> None:
    target = profile(TARGET)
    guess = assumed_draft(target, "eagle3")
    assert guess is not None
    unread = replace(target, draft=Draft(name="x", method="eagle3", profile=guess, missing="offline"))
    assert added(drafted()) < added(unread) < 3 * added(drafted())
    assert assumed_draft(target, "draft_model") is None


@pytest.mark.parametrize(
    ("speculative", "config", "method"),
    [
        ({"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}, {}, "eagle3"),
        ({"model": "yuhuili/EAGLE-LLaMA3-Instruct-8B"}, {}, "eagle"),
        ({"model": "z-lab/Qwen3-8B-DFlash-b16"}, {}, "dflash"),
        ({"model": "a/b", "method": "eagle3"}, {}, "eagle3"),
        ({"model": "a/b"}, {"speculators_model_type": "peagle"}, "eagle3"),
        ({"model": "a/b"}, {"model_type": "medusa"}, "medusa"),
        ({"model": "a/b"}, {"model_type": "deepseek_mtp"}, "mtp"),
        ({"model": "Qwen/Qwen3-0.6B"}, {"model_type": "qwen3"}, "draft_model"),
    ],
)
def test_method_is_the_one_the_engine_settles_on(
    speculative: dict[str, Any], config: dict[str, Any], method: str
) -> None:
    assert method_of(speculative, config) == method


def test_speculators_config_is_unfolded() -> None:
    inner = {key: value for key, value in HEAD.items() if key not in ("architectures", "draft_vocab_size")}
    folded = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": SHORT,
        "transformer_layer_config": inner,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": [2, 32, 61],
    }
    settled = dict(settled_config(folded, "eagle3"))
    assert settled["architectures"] == ["Eagle3LlamaForCausalLM"]
    assert states_read(settled, "eagle3") == 3
    assert added(drafted(config=settled)) == added(drafted())


def test_class_is_named_after_the_method() -> None:
    plain = {**HEAD, "architectures": ["LlamaForCausalLM"]}
    assert settled_config(plain, "eagle")["architectures"] == ["EagleLlamaForCausalLM"]
    assert settled_config(plain, "draft_model")["architectures"] == ["LlamaForCausalLM"]


@pytest.mark.parametrize(
    ("speculative", "named"),
    [
        (None, None),
        ({"method": "ngram", "num_speculative_tokens": 3}, None),
        ({"method": "suffix", "model": "suffix"}, None),
        ({"model": "ngram"}, None),
        ({"method": "eagle3", "model": "a/b"}, "a/b"),
    ],
)
def test_only_a_checkpoint_is_a_draft(speculative: dict[str, Any] | None, named: str | None) -> None:
    assert draft_named(EngineArguments(speculative_config=speculative)) == named


def test_held_tables_are_read_from_the_tensors_names() -> None:
    assert held_tables(["midlayer.mlp.up_proj.weight", "lm_head.weight"]) == {"lm_head"}
    assert held_tables(["model.embed_tokens.weight"]) == {"embed_tokens"}


def running(version: str, tokens: int = 8192, **speculative: Any) -> RankSetting:
    return RankSetting(
        version=EngineVersion.parse(version),
        engine=EngineArguments(speculative_config={"num_speculative_tokens": 3, **speculative}),
        parallelism=Parallelism(),
        stage=0,
        total_bytes=80 * GIB,
        device_name="NVIDIA H100 80GB HBM3",
        compute_capability="9.0",
        backend="cuda",
        unified=False,
        max_num_batched_tokens=tokens,
        max_num_seqs=256,
    )


def test_states_the_draft_reads_live_beside_the_pass() -> None:
    assert draft_buffers(drafted(), running("0.22.0", method="eagle3")) == (3 * 8192 * HIDDEN * 2, 0)
    assert draft_buffers(profile(TARGET), running("0.22.0", method="ngram")) == (0, 0)


@pytest.mark.parametrize(("version", "tables"), [("0.26.0", 0), ("0.29.0", 1), ("0.33.0", 1)])
def test_proposer_s_own_tables_are_counted_by_later_releases(version: str, tables: int) -> None:
    kept = draft_buffers(drafted(), running(version, method="eagle3"))[1]
    assert kept == tables * 8192 * HIDDEN * 2


def test_mtp_layers_draft_through_the_same_proposer() -> None:
    own = profile("deepseek-ai__DeepSeek-R1")
    assert draft_buffers(own, running("0.28.0", method="mtp")) == (0, 2 * 8192 * 7168 * 2)
    assert draft_buffers(own, running("0.28.0", method="ngram")) == (0, 0)


def test_logits_of_sampled_drafts_are_kept() -> None:
    cases: tuple[dict[str, Any], ...] = ({}, {"draft_sample_method": "probabilistic"})
    greedy, sampled = (
        draft_buffers(drafted(), running("0.33.0", tokens=8192, method="eagle3", **more))[1] for more in cases
    )
    assert sampled - greedy == 256 * 3 * ROWS * 2
