"""Language models inside a multimodal config: the same builders under a prefix, with towers on every pipeline stage.

vLLM 0.32: vllm/model_executor/models/utils.py (`init_vllm_registered_model`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpuplan.domain.model import Encoder, Linear, Part, Residence, ResidentPart, Scheme
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Blueprint, Builder, Context
from gpuplan.engine.architectures.quantizer import Quantizer


@dataclass(frozen=True, slots=True)
class PrefixedQuantizer:
    """A quantizer asked with paths of a nested model."""

    whole: Quantizer
    prefix: str

    @property
    def name(self) -> str | None:
        return self.whole.name

    @property
    def kv_cache_dtype(self) -> str | None:
        return self.whole.kv_cache_dtype

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self.whole.assumptions

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
    quantizer: Quantizer = PrefixedQuantizer(context.quantizer, prefix)  # type: ignore[assignment]
    return replace(context, config=view, quantizer=quantizer, architecture=architecture or context.architecture)


def inherited(context: Context, view: ConfigView, *keys: str) -> ConfigView:
    """`view` with the values of `keys` it does not have itself taken from the whole config."""
    taken = {key: context.config.values[key] for key in keys if key in context.config and key not in view}
    return ConfigView({**view.values, **taken}, view.place) if taken else view


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
