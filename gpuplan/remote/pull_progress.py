"""How far a pull is, from the events of its layers: the bytes only grow, and end at the total."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DONE = {"Pull complete", "Already exists"}
_FETCHED = {"Download complete", "Verifying Checksum", "Extracting"}
_BEGUN = {"Pulling fs layer", "Waiting", "Downloading", "Retrying", *_FETCHED, *_DONE}


@dataclass(slots=True)
class _Layer:
    size: int | None = None
    """Packed."""
    fetched: int = 0
    unpacked: int = 0
    complete: bool = False


class PullProgress:
    """Put together from the events of `POST /images/create`.

    A layer is downloaded and then unpacked, others meanwhile: each byte counts half when it is here and half when it
    is unpacked, so that the total is the packed size of the layers that were not there before.
    """

    def __init__(self) -> None:
        self._layers: dict[str, _Layer] = {}
        self._done = 0

    @property
    def done(self) -> int:
        return self._done

    @property
    def total(self) -> int | None:
        """None until the size of every layer is known: the engine tells it when the layer's download begins."""
        sizes = [layer.size for layer in self._layers.values() if not (layer.complete and layer.size is None)]
        known = [size for size in sizes if size is not None]
        return sum(known) if known and len(known) == len(sizes) else None

    @property
    def about(self) -> str:
        """`downloading`; `unpacking` when every layer is here."""
        layers = self._layers.values()
        if not layers:
            return "asking the registry"
        fetched = all(
            layer.complete or (layer.size is not None and layer.fetched >= layer.size) for layer in layers
        )
        return "unpacking" if fetched else "downloading"

    def take(self, event: Mapping[str, Any]) -> None:
        """Count one event; those that are not of a layer change nothing."""
        status, name = event.get("status"), event.get("id")
        kind = str(status).partition(" in ")[0]
        if not isinstance(name, str) or kind not in _BEGUN:
            return
        layer = self._layers.setdefault(name, _Layer())
        detail = event.get("progressDetail")
        current, total = _figures(detail if isinstance(detail, dict) else {})
        if total is not None:
            layer.size = max(layer.size or 0, total)
        if kind == "Downloading" and current is not None:
            layer.fetched = max(layer.fetched, current)
        if kind in _FETCHED | _DONE and layer.size is not None:
            layer.fetched = layer.size
        if kind == "Extracting" and current is not None:
            layer.unpacked = max(layer.unpacked, current)
        if kind in _DONE:
            layer.complete = True
            layer.unpacked = layer.size or 0
        whole = sum(layer.fetched + layer.unpacked for layer in self._layers.values()) // 2
        self._done = max(self._done, whole)


def _figures(detail: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Bytes and bytes in all; the containerd store counts seconds of unpacking instead (`units`)."""
    if detail.get("units"):
        return None, None
    current, total = detail.get("current"), detail.get("total")
    return (
        current if isinstance(current, int) and current >= 0 else None,
        total if isinstance(total, int) and total > 0 else None,
    )
