"""Language models inside a multimodal config: the same builders under a prefix, with towers on every pipeline stage.

vLLM 0.32: vllm/model_executor/models/utils.py (`init_vllm_registered_model`).
"""

from collections.abc import Iterable
from dataclasses import replace

from gpuplan.domain.model import Encoder, Linear, Part, Residence, ResidentPart, Scheme
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Blueprint, Builder, Context
from gpuplan.engine.architectures.quantizer import Quantizer


class PrefixedQuantizer:
    """A quantizer asked with paths of a nested model."""

    def __init__(self, whole: Quantizer, prefix: str) -> None:
        self.whole = whole
        self.prefix = prefix
        self.name = whole.name
        self.kv_cache_dtype = whole.kv_cache_dtype
        self.assumptions = whole.assumptions
        self.while_loading = whole.while_loading

    def linear(self, path: str, fused: tuple[str, ...] = ()) -> Scheme:
        return self.whole.linear(f"{self.prefix}{path}", fused)

    def experts(self, path: str) -> Scheme:
        return self.whole.experts(f"{self.prefix}{path}")

    def embedding(self, path: str) -> Scheme:
        return self.whole.embedding(f"{self.prefix}{path}")

    def cache_scale_bytes(self, itemsize: int, *, latent: bool) -> int:
        return self.whole.cache_scale_bytes(itemsize, latent=latent)


def nested(context: Context, view: ConfigView, prefix: str, *, architecture: str = "") -> Context:
    """The context of the language model that `view` configures and vLLM builds under `prefix` (with its dot)."""
    quantizer: Quantizer = PrefixedQuantizer(context.quantizer, prefix)
    return replace(
        context, config=view, quantizer=quantizer, architecture=architecture or context.architecture
    )


def inherited(context: Context, key: str) -> ConfigView:
    """The language model's config at `key`, its head tied where it or the whole config says so (vllm/config/vllm.py)."""
    view, name = context.config.view(key), "tie_word_embeddings"
    if name not in context.config:
        return view
    return ConfigView({**view.values, name: context.config.flag(name) or view.flag(name)}, view.place)


def with_towers(
    context: Context,
    builder: Builder,
    view: ConfigView,
    towers: Iterable[ResidentPart],
    encoders: tuple[Encoder, ...],
    *,
    prefix: str = "language_model.",
) -> Blueprint:
    """The language model of `view` with towers beside it."""
    text = builder(nested(context, view, prefix))
    return replace(text, parts=(*text.parts, *towers), encoders=encoders, text_view=view)


def tower_parts(
    parts: Iterable[Part], *, tower: str = "vision", tensor_parallel: bool = True, heads: int | None = None
) -> tuple[ResidentPart, ...]:
    """Parts of a tower, whole on every pipeline stage."""
    return tuple(
        ResidentPart(
            part=part, residence=Residence.EVERY, tower=tower, tensor_parallel=tensor_parallel, heads=heads
        )
        for part in parts
    )


def tower_buffer(part: Part, *, tower: str = "vision") -> ResidentPart:
    """A buffer of a tower."""
    return ResidentPart(part=part, residence=Residence.EVERY, tower=tower, buffer=True)


def repeated(parts: tuple[Part, ...], name: str) -> tuple[Part, ...]:
    """The parts of one block under names that do not tell its number, so that equal blocks are computed once."""
    return tuple(
        replace(part, name=f"{name} {part.name.rpartition('.')[2]}") if isinstance(part, Linear) else part
        for part in parts
    )
