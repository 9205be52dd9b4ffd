"""What findings have in common, in words: a place, a shape, the engine's own line."""

from collections.abc import Mapping
from typing import Any

from gpuplan.present.numbers import gpu_range, listed
from gpuplan.units import plural


def place(subject: Mapping[str, Any]) -> str:
    """`h1 GPU 0-3`, `h1, h2 … 4 more`, as far as the subject names them."""
    if "hosts" in subject:
        names = listed(list(subject["hosts"]))
        more = int(subject.get("more", 0))
        names = f"{names} … {more} more" if more else names
        gpus = subject.get("gpus")
        return f"{names} GPU {gpu_range(gpus)}" if isinstance(gpus, (list, tuple)) else names
    host = str(subject.get("host", "this hardware"))
    gpus = subject.get("gpus")
    if isinstance(gpus, (list, tuple)):
        return f"{host} GPU {gpu_range(gpus)}"
    if isinstance(gpus, int):
        return f"{host} ({plural(gpus, 'GPU')})"
    return host


def shape(figures: Mapping[str, Any]) -> str:
    """`TP 4 × PP 2`."""
    words = [f"TP {figures.get('tensor', 1)}"]
    if figures.get("pipeline", 1) > 1:
        words.append(f"PP {figures['pipeline']}")
    if figures.get("data", 1) > 1:
        words.append(f"DP {figures['data']}")
    if figures.get("expert"):
        words.append("EP")
    return " × ".join(words)


def engine_says(figures: Mapping[str, Any]) -> tuple[str, ...]:
    """The line the engine would print, where it is known."""
    line = figures.get("line")
    return (f"the engine would print: {line}",) if line else ()
