"""The catalogues in rows and as data."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from gpuplan.domain.hardware import Accelerator
from gpuplan.present.document import Line, Lines, Role, Span, line, padded, visible
from gpuplan.present.numbers import count, gib


class ListedModel(Protocol):
    """What a row of the model list shows."""

    @property
    def name(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def quantization(self) -> str | None: ...
    @property
    def parameters(self) -> int | None: ...
    @property
    def longest_context(self) -> int | None: ...
    @property
    def base(self) -> str | None: ...
    @property
    def source(self) -> str: ...


def models_text(models: Sequence[ListedModel], width: int) -> Lines:
    """A row per model."""
    return tuple(_model_rows(models, width))


def _model_rows(models: Sequence[ListedModel], width: int) -> Iterator[Line]:
    name = min(max(5, *(len(model.name) for model in models)), width - 38)
    yield model_header(name)
    for model in models:
        yield model_line(model, name)


def model_header(name: int) -> Line:
    """What the columns of `model_line` are; `name`: cells for the first."""
    return line(Span(f"{padded('model', name)} {'parameters':>10} {'context':>10}  weights", Role.DIM))


def model_line(model: ListedModel, name: int) -> Line:
    """A model: name, size, longest context, quantization."""
    size = "–" if not model.parameters else f"{model.parameters / 1e9:,.1f} B"
    context = "–" if not model.longest_context else count(model.longest_context)
    return line(
        f"{padded(visible(model.name), name)} {size:>10} {context:>10}  "
        f"{padded(visible(model.quantization or '16 bit'), 14).rstrip()}"
    )


def models_document(models: Sequence[ListedModel]) -> list[dict[str, Any]]:
    return [
        {
            "name": model.name,
            "family": model.family,
            "architecture": model.architecture,
            "quantization": model.quantization,
            "parameters": model.parameters,
            "longest_context": model.longest_context,
            "base": model.base,
            "source": model.source,
        }
        for model in models
    ]


def accelerators_text(accelerators: Sequence[Accelerator], width: int) -> Lines:
    """A row per accelerator."""
    return tuple(_accelerator_rows(accelerators, width))


def _accelerator_rows(accelerators: Sequence[Accelerator], width: int) -> Iterator[Line]:
    extra = max(0, width - 80)
    name = min(max(11, *(len(item.name) for item in accelerators)), 22 + extra)
    yield line(
        Span(
            f"{padded('accelerator', name)} {'memory':>11} {'basis':<9}{'TB/s':>6}  {'cc':<5}{'backend':<8}links",
            Role.DIM,
        )
    )
    for item in accelerators:
        speed = (
            "–" if not item.bandwidth_bytes_per_second else f"{item.bandwidth_bytes_per_second / 1e12:.2f}"
        )
        yield line(
            f"{padded(item.name, name)} {gib(item.memory_bytes):>11} {item.memory_basis.value:<9}{speed:>6}  "
            f"{item.compute_capability or '–':<5}{item.backend:<8}{item.link or '–'}"
        )


def accelerators_document(accelerators: Sequence[Accelerator]) -> list[dict[str, Any]]:
    return [
        {
            "name": item.name,
            "vendor": item.vendor,
            "backend": item.backend,
            "architecture": item.architecture,
            "compute_capability": item.compute_capability,
            "memory_bytes": item.memory_bytes,
            "memory_basis": item.memory_basis.value,
            "bandwidth_bytes_per_second": item.bandwidth_bytes_per_second,
            "link": item.link,
            "link_bytes_per_second": item.link_bytes_per_second,
            "unified": item.unified,
            "tdp_watts": item.tdp_watts,
            "aliases": list(item.aliases),
            "source": item.source,
        }
        for item in accelerators
    ]
