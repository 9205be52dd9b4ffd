"""The built-in catalogues, filtered by words."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from gpuplan.domain.hardware import Accelerator
from gpuplan.errors import UsageError
from gpuplan.sources.catalogue import accelerators, models
from gpuplan.sources.catalogue.models import CatalogueModel
from gpuplan.sources.catalogue.names import near_misses


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=_Named)


def find_models(words: Sequence[str]) -> tuple[CatalogueModel, ...]:
    """Models whose name, family, architecture or quantization contains every word; all without words."""
    return _matching(
        models.load(),
        words,
        lambda item: f"{item.name} {item.family} {item.architecture} {item.quantization or ''}",
        "models",
    )


def find_accelerators(words: Sequence[str]) -> tuple[Accelerator, ...]:
    """Accelerators whose names, vendor or architecture contain every word; all without words."""
    return _matching(
        accelerators.load(),
        words,
        lambda item: (
            f"{item.name} {item.vendor} {item.architecture} {item.backend} {' '.join(item.aliases)} {' '.join(item.device_names)}"
        ),
        "gpus",
    )


def _matching(
    entries: Sequence[Entry], words: Sequence[str], text: Callable[[Entry], str], command: str
) -> tuple[Entry, ...]:
    wanted = [word.lower() for word in words]
    found = tuple(entry for entry in entries if all(word in text(entry).lower() for word in wanted))
    if found:
        return found
    near = near_misses(" ".join(words), [entry.name for entry in entries], limit=3)
    meant = f"did you mean {', '.join(near)}? " if near else ""
    raise UsageError(
        f"nothing in the catalogue matches {' '.join(words)!r}", hint=f"{meant}`gpuplan {command}` lists all"
    )
