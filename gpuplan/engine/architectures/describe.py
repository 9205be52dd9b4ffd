"""config.json (and the quantization files beside it) to ModelProfile."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuplan.domain.model import CacheKind, Layer, ModelProfile, Partition, Tensor
from gpuplan.domain.repository import Evidence
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Blueprint, Context
from gpuplan.engine.architectures.quantizer import Quantizer, quantizer_for
from gpuplan.engine.architectures.registry import builder_of
from gpuplan.engine.architectures.unknown import build_unknown
from gpuplan.errors import ModelError

ARCHITECTURE_OF_TYPE = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
}
"""Where a config names no architecture."""
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "half": 2, "float": 4}


def describe(
    name: str,
    config: Mapping[str, Any],
    *,
    hf_quant_config: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    quantization: str | None = None,
    pooling: bool = False,
    evidence: Evidence = Evidence.CONFIG,
    checkpoint_bytes: int | None = None,
) -> ModelProfile:
    """Describe a model from its config.

    `dtype`, `quantization` are vLLM's `--dtype` and `--quantization` (None or `auto`: the checkpoint's own);
    `pooling` builds it without an output head. Raises ModelError naming the key that is wrong.
    """
    view = ConfigView(config, f"config of {name.replace(': ', ':')}")
    architecture = _architecture(view)
    resolved = _dtype(view, dtype)
    quantizer = quantizer_for(config, hf_quant_config, quantization)
    context = Context(
        config=view,
        quantizer=quantizer,
        itemsize=DTYPE_BYTES[resolved],
        pooling=pooling,
        architecture=architecture,
    )
    builder = builder_of(architecture)
    blueprint = build_unknown(context, name, checkpoint_bytes) if builder is None else builder(context)
    if blueprint.kv_heads and blueprint.attention_heads % blueprint.kv_heads:
        raise view.error(
            "num_attention_heads",
            f"is {blueprint.attention_heads}, no multiple of {blueprint.kv_heads} key-value heads",
        )
    kinds, order = _kinds(_with_scales(blueprint.layers, quantizer, DTYPE_BYTES[resolved]))
    draft_kinds, draft_order = _kinds(_with_scales(blueprint.drafts, quantizer, DTYPE_BYTES[resolved]))
    return ModelProfile(
        name=name,
        architecture=architecture,
        model_type=view.text("model_type"),
        dtype=resolved,
        itemsize=DTYPE_BYTES[resolved],
        hidden=blueprint.hidden,
        vocabulary=blueprint.vocabulary,
        attention_heads=blueprint.attention_heads,
        kv_heads=blueprint.kv_heads,
        head_size=blueprint.head_size,
        layer_kinds=kinds,
        layer_order=order,
        parts=blueprint.parts,
        draft_kinds=draft_kinds,
        draft_order=draft_order,
        longest_context=_longest_context(blueprint, view),
        encoders=blueprint.encoders,
        quantization=quantizer.name,
        quantized_while_loading=quantizer.while_loading,
        kv_cache_dtype=blueprint.kv_cache_dtype or quantizer.kv_cache_dtype,
        supports_pipeline=blueprint.supports_pipeline,
        pooling=pooling or blueprint.pooling,
        evidence=_evidence(blueprint, evidence, checkpoint_bytes),
        recognised=blueprint.recognised,
        assumptions=(*blueprint.assumptions, *quantizer.assumptions),
        checkpoint_bytes=checkpoint_bytes,
    )


def _architecture(view: ConfigView) -> str:
    names = view.items("architectures")
    if names and isinstance(names[0], str):
        return names[0]
    return ARCHITECTURE_OF_TYPE.get(view.text("model_type"), "")


def _dtype(view: ConfigView, asked: str | None) -> str:
    """vLLM's `auto`: the config's dtype, float32 checkpoints run as bfloat16."""
    if asked and asked != "auto":
        known = {"half": "float16", "float": "float32"}.get(asked, asked)
        if known not in DTYPE_BYTES:
            raise ModelError(
                f"--dtype {asked[:40]}: not one of {', '.join(('auto', *DTYPE_BYTES))}",
                hint="leave --dtype out for the checkpoint's own",
            )
        return known
    text = (
        view.raw("torch_dtype", "dtype") or view.view("text_config").raw("torch_dtype", "dtype") or "bfloat16"
    )
    text = str(text).removeprefix("torch.")
    return text if text in {"bfloat16", "float16"} else "bfloat16"


def _with_scales(layers: tuple[Layer, ...], quantizer: Quantizer, itemsize: int) -> tuple[Layer, ...]:
    """The layers with the cache scales that the quantization method adds to every attention of theirs."""
    attention = {CacheKind.FULL, CacheKind.SLIDING, CacheKind.CHUNKED}
    latent = {CacheKind.LATENT, CacheKind.SLIDING_LATENT}
    done: dict[Layer, Layer] = {}
    for layer in layers:
        if layer not in done:
            size = sum(
                quantizer.cache_scale_bytes(itemsize, latent=cache.kind in latent)
                for cache in layer.caches
                if cache.kind in attention or cache.kind in latent
            )
            scales = Tensor(name="cache scales", partition=Partition(units=size), itemsize=1)
            done[layer] = replace(layer, parts=(*layer.parts, scales)) if size else layer
    return tuple(done[layer] for layer in layers)


def _kinds(layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    numbers: dict[Layer, int] = {}
    order = tuple(numbers.setdefault(layer, len(numbers)) for layer in layers)
    return tuple(numbers), order


ALREADY_SCALED = frozenset({"su", "longrope", "llama3", "deepseek_llama_scaling", "default", "mrope"})
"""Rotary types whose `max_position_embeddings` is the length after scaling."""
YARN = frozenset({"yarn", "deepseek_yarn"})


def _longest_context(blueprint: Blueprint, view: ConfigView) -> int:
    """The length the engine derives (`_get_and_verify_max_len`): the stated one times a plain rotary factor; 0: not stated."""
    text = blueprint.text_view or view
    stated = text.integer(
        "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", default=0, least=0
    )
    rotary = text.view("rope_scaling") if isinstance(text.raw("rope_scaling"), Mapping) else ConfigView({})
    kind = str(rotary.raw("rope_type", "type") or "default")
    factor = rotary.number("factor", default=1.0)
    if "gemma3" in text.text("model_type") or kind in ALREADY_SCALED or not 1 < factor < 1024:
        return stated
    if kind in YARN:
        original = rotary.integer("original_max_position_embeddings", default=0, least=0)
        return max(stated, int(original * factor))
    return int(stated * factor)


def _evidence(blueprint: Blueprint, given: Evidence, checkpoint_bytes: int | None) -> Evidence:
    """An unknown layout without checkpoint bytes rests on its config, or on its name alone."""
    if blueprint.recognised or checkpoint_bytes is not None:
        return given
    return Evidence.CONFIG if blueprint.layers else Evidence.NAME
