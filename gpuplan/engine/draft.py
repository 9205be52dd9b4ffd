"""A draft model with a checkpoint of its own: what vLLM loads, caches and runs beside the target.

It is loaded on the last pipeline stage, over the target's tensor-parallel ranks whatever `draft_tensor_parallel_size`
says (`draft_model` refuses another size, the others never look at it). Its layers join the target's when KV caches are
grouped. What it shares with the target (vLLM v1/spec_decode/eagle.py and llm_base_proposer.py `load_model`,
v1/worker/gpu/spec_decode/eagle/utils.py):

* a plain draft model and Medusa: nothing;
* the input embedding: of a single stage alone, up to 0.11.0 where the shapes are equal, from 0.11.1 where the checkpoint
  holds none or an equal one of the same width (an EAGLE head is trained on the target's, which is taken to be so);
* the head: EAGLE's always up to 0.11.0; EAGLE-3's under 0.11.0 where the shapes are equal, before never; from 0.11.1 where
  the checkpoint holds none or an equal one (a head it holds was trained, so it is taken to differ).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from gpuplan.domain.model import (
    Cache,
    CacheKind,
    Draft,
    Embedding,
    Layer,
    Linear,
    ModelProfile,
    Partition,
    Residence,
    ResidentPart,
    Shard,
    Tensor,
)
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.architectures.drafts import AUX_STATES, draft_architecture
from gpuplan.engine.rank_setting import RankSetting, runner_v2
from gpuplan.engine.versions import CONSUMED_SINCE, EngineVersion

EMBEDDING, HEAD = "embed_tokens", "lm_head"
WITHOUT_MODEL = ("ngram", "[ngram]", "ngram_gpu", "suffix", "extract_hidden_states", "custom_class")
TRAINED_ON_TARGET = ("eagle", "eagle3", "dflash", "dspark")
SHARES_NOTHING = ("draft_model", "medusa", "mlp_speculator")
SPECULATORS = {"peagle": "eagle3", "dflash2": "dflash"}
"""Methods vLLM runs a speculators checkpoint by, where the name is another (`build_vllm_speculative_config`)."""
SPECULATORS_CLASSES = {
    "eagle3": {"llama": "Eagle3LlamaForCausalLM", "qwen3": "Eagle3Qwen3ForCausalLM"},
    "peagle": {"llama": "PeagleLlamaForCausalLM", "qwen3": "PeagleQwen3ForCausalLM"},
    "dflash": {},
    "dflash2": {},
    "dspark": {},
}
"""vLLM transformers_utils/configs/speculators/algos.py; those without a table are one class for every layer."""
SPECULATORS_CLASS = {
    "dflash": "DFlashDraftModel",
    "dflash2": "DFlash2DraftModel",
    "dspark": "Qwen3DSparkModel",
}
OWN_COPY_CHECKED_SINCE = EngineVersion(0, 11, 1)
HEAD_BY_SHAPE_SINCE = EngineVersion(0, 11)
LOGITS_IN_MODEL_TYPE_SINCE = EngineVersion(0, 29)
"""Before, drafts' logits were kept as float32."""
ASSUMED_LAYERS = {"eagle": 1, "eagle3": 1, "dflash": 5, "dspark": 5}
"""Of published drafts: one for EAGLE, five for DFlash."""
WIDEST_MLP = 6
"""Intermediate width over hidden size of the widest published EAGLE heads (gpt-oss-120b, Qwen3-235B)."""


def draft_named(engine: EngineArguments) -> str | None:
    """The checkpoint that `--speculative-config` names; None where no draft has one."""
    speculative = engine.speculative_config or {}
    named, method = speculative.get("model"), speculative.get("method")
    if not isinstance(named, str) or not named or method in WITHOUT_MODEL or named in WITHOUT_MODEL:
        return None
    return named


def method_of(speculative: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The method vLLM settles on for a draft (`SpeculativeConfig.__post_init__`)."""
    stated, name = str(speculative.get("method") or ""), str(speculative.get("model") or "").lower()
    kind = config.get("speculators_model_type")
    if isinstance(kind, str) and kind in SPECULATORS_CLASSES and not stated:
        return SPECULATORS.get(kind, kind)
    if stated in TRAINED_ON_TARGET:
        return stated
    for part, method in (
        ("eagle-", "eagle"),
        ("eagle3", "eagle3"),
        ("dflash", "dflash"),
        ("dspark", "dspark"),
    ):
        if part in name:
            return method
    model_type = str(config.get("model_type") or "")
    if model_type in SHARES_NOTHING:
        return model_type
    return "mtp" if model_type.endswith("mtp") or stated.endswith("mtp") else stated or "draft_model"


def settled_config(config: Mapping[str, Any], method: str) -> Mapping[str, Any]:
    """A draft's config as vLLM reads it: speculators' format unfolded, the class named after the method."""
    kind = config.get("speculators_model_type")
    if isinstance(kind, str) and kind in SPECULATORS_CLASSES:
        return _unfolded(config, kind)
    nested = config.get("model")
    if method in ("eagle", "eagle3") and isinstance(nested, Mapping):
        config = {**nested, **config}
    names = config.get("architectures")
    if method == "medusa" or config.get("model_type") == "medusa":
        return {**config, "architectures": ["MedusaModel"]}
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        return config
    return {**config, "architectures": [draft_architecture(method, names[0])]}


def _unfolded(config: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    inner = config.get("transformer_layer_config")
    inner = dict(inner) if isinstance(inner, Mapping) else {}
    outer = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    outer.pop("model_type", None)
    classes = SPECULATORS_CLASSES[kind]
    name = classes.get(str(inner.get("model_type", "llama"))) if classes else SPECULATORS_CLASS[kind]
    merged = {**inner, **{key: value for key, value in outer.items() if value is not None}}
    merged["architectures"] = [name] if name else config.get("architectures")
    listed = config.get("eagle_aux_hidden_state_layer_ids") or config.get("aux_hidden_state_layer_ids")
    if listed:
        merged["eagle_aux_hidden_state_layer_ids"] = listed
        merged["num_aux_hidden_states"] = len(listed) if isinstance(listed, list) else AUX_STATES
    quantization = config.get("quantization_config")
    return {**merged, "quantization_config": quantization} if quantization else merged


def states_read(config: Mapping[str, Any], method: str) -> int:
    """Layers of the target whose hidden states a draft reads besides the last."""
    if method not in ("eagle3", "dflash", "dspark"):
        return 0
    dflash = config.get("dflash_config")
    for place in (config, dflash if isinstance(dflash, Mapping) else {}):
        for key in (
            "eagle_aux_hidden_state_layer_ids",
            "target_layer_ids",
            "dspark_target_layer_ids",
            "layer_ids",
        ):
            listed = place.get(key)
            if isinstance(listed, list) and 0 < len(listed) <= 512:
                return len(listed)
    return AUX_STATES


def held_tables(names: Iterable[str]) -> frozenset[str]:
    """Which of the two vocabulary tables a checkpoint with these tensors holds."""
    return frozenset(table for table in (EMBEDDING, HEAD) for name in names if f"{table}." in name)


def assumed_draft(target: ModelProfile, method: str) -> ModelProfile | None:
    """A draft of that method whose files could not be read: as large as published ones for a target of these sizes."""
    number = ASSUMED_LAYERS.get(method, 0)
    if not number or not target.attention_heads or not target.head_size or not target.layer_kinds:
        return None
    hidden, itemsize = target.hidden, target.itemsize
    width = max(*(kind.intermediate for kind in target.layer_kinds), WIDEST_MLP * hidden)
    heads, keys = target.attention_heads, target.kv_heads or 1

    def linear(name: str, inputs: int, outputs: int, shard: Shard) -> Linear:
        return Linear(
            name=name,
            inputs=Partition(units=inputs),
            outputs=(Partition(units=outputs),),
            shard=shard,
            itemsize=itemsize,
        )

    queried = Partition(units=heads, unit_size=target.head_size)
    stored = Partition(units=keys, unit_size=target.head_size, replicable=True)
    layer = Layer(
        name="draft",
        parts=(
            Linear(
                name="qkv_proj",
                inputs=Partition(units=2 * hidden),
                outputs=(queried, stored, stored),
                shard=Shard.COLUMN,
                itemsize=itemsize,
            ),
            replace(linear("o_proj", 1, hidden, Shard.ROW), inputs=queried),
            linear("gate_up_proj", hidden, 2 * width, Shard.COLUMN),
            linear("down_proj", width, hidden, Shard.ROW),
        ),
        caches=(Cache(kind=CacheKind.FULL, heads=keys, head_size=target.head_size),),
        intermediate=width,
    )
    read = AUX_STATES if method == "eagle3" else number if method in ("dflash", "dspark") else 2
    head = Embedding(name=HEAD, rows=target.vocabulary, width=hidden, itemsize=itemsize)
    fc = linear("fc", read * hidden, hidden, Shard.REPLICATED)
    parts = (fc, head) if method == "eagle3" else (fc,)
    return replace(
        target,
        name=method,
        architecture="",
        layer_kinds=(layer,),
        layer_order=(0,) * number,
        parts=tuple(ResidentPart(part=part, residence=Residence.LAST) for part in parts),
        draft_kinds=(),
        draft_order=(),
        encoders=(),
        recognised=False,
        draft=None,
    )


@lru_cache(maxsize=256)
def with_draft(target: ModelProfile, version: EngineVersion, stages: int) -> ModelProfile:
    """The target with the layers and parts of its draft as `draft_kinds`; unchanged without a draft of known size.

    What belongs to no layer of the draft stands in a last one of its own that caches nothing.
    """
    draft = target.draft
    if draft is None or draft.profile is None:
        return target
    own = draft.profile
    tables = {
        resident.part for resident in target.parts if resident.buffer and isinstance(resident.part, Tensor)
    }
    rest = tuple(
        resident.part
        for resident in own.parts
        if not _shared(resident, target, draft, version, stages)
        and not (resident.buffer and resident.part in tables)
    )
    kinds = (*own.layer_kinds, Layer(name="draft, outside its layers", parts=rest))
    return replace(target, draft_kinds=kinds, draft_order=(*own.layer_order, len(kinds) - 1))


def _shared(
    resident: ResidentPart, target: ModelProfile, draft: Draft, version: EngineVersion, stages: int
) -> bool:
    """Whether a vocabulary table of the draft is given up for the target's."""
    part = resident.part
    if not isinstance(part, Embedding) or draft.method in SHARES_NOTHING:
        return False
    held = draft.holds is not None and part.name in draft.holds
    same = (part.rows, part.width) == (target.vocabulary, target.hidden)
    if part.name == EMBEDDING:
        if stages > 1:
            return False
        if version < OWN_COPY_CHECKED_SINCE or held:
            return same
        return part.width == target.hidden
    if draft.method == "mtp" or (draft.method == "eagle" and version < OWN_COPY_CHECKED_SINCE):
        return True
    if version < OWN_COPY_CHECKED_SINCE:
        return same and version >= HEAD_BY_SHAPE_SINCE
    if draft.holds is None:
        return draft.method in ("eagle", "dflash") and same
    return not held


def draft_buffers(profile: ModelProfile, setting: RankSetting) -> tuple[int, int]:
    """(while the profile run passes through the target, kept) bytes on the last stage that drafting adds.

    The target's states that the draft reads live until the pass ends. The proposer's own hidden states (and embeddings,
    in the first runner) for a whole batch stand before the model is loaded, and so do the second runner's logits of
    drafts that are sampled; releases that read what is consumed from the device count them (`SpecDecodeBaseProposer.__init__`,
    v1/worker/gpu/spec_decode/speculator.py). MTP layers draft through the same proposer.
    """
    speculative, draft = setting.engine.speculative_config or {}, profile.draft
    if not setting.last_stage or not _by_a_model(profile, setting.engine.speculative_method):
        return 0, 0
    own = profile if draft is None or draft.profile is None else draft.profile
    row = setting.max_num_batched_tokens * profile.itemsize
    read = draft.states * row * profile.hidden if draft is not None else 0
    if setting.version < CONSUMED_SINCE:
        return read, 0
    second = runner_v2(profile, setting)
    kept = (1 if second else 2) * row * own.hidden
    if second and speculative.get("draft_sample_method") == "probabilistic":
        size = profile.itemsize if setting.version >= LOGITS_IN_MODEL_TYPE_SINCE else 4
        kept += setting.max_num_seqs * setting.engine.speculative_tokens * profile.vocabulary * size
    return read, kept


def _by_a_model(profile: ModelProfile, method: str) -> bool:
    """Whether a draft of its own checkpoint or MTP layers propose tokens."""
    if profile.draft is not None:
        return profile.draft.profile is not None
    return bool(profile.draft_order) and method.endswith("mtp")
