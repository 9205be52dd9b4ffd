"""Bytes and exact arithmetic. A size is an int of bytes everywhere but in `present`."""

import math
import re

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_DURATION = re.compile(r"([0-9]{1,9})([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MULTIPLES = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1024**4,
    "k": KIB,
    "m": MIB,
    "g": GIB,
    "t": 1024**4,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
}


def ceil_div(numerator: int, denominator: int) -> int:
    """Smallest integer not below numerator / denominator."""
    return -(-numerator // denominator)


def round_up(value: int, multiple: int) -> int:
    """Smallest multiple of `multiple` not below `value`."""
    return ceil_div(value, multiple) * multiple


def plural(number: int, noun: str) -> str:
    """`1 GPU`, `3 GPUs`, `1,000 GPUs`."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def parse_duration(text: str) -> int:
    """Read `90s`, `10m`, `2h`, `1d` or plain seconds as seconds. Raises ValueError, whose text says what is accepted."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a duration; write for example 90s, 10m, 2h or 1d")
    return int(match.group(1)) * _SECONDS[match.group(2)]


def parse_size(text: str) -> int:
    """Read `80GiB`, `79.19GiB`, `80GB` (decimal), `512MiB` or plain bytes as bytes.

    Raises ValueError, whose text says what is accepted.
    """
    match = _SIZE.fullmatch(text)
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in _MULTIPLES:
        raise ValueError(f"{text!r} is not a size; write for example 80GiB, 79.19GiB, 512MiB or 80GB")
    size = float(match.group(1)) * _MULTIPLES[unit]
    if not math.isfinite(size) or size >= 2**60:
        raise ValueError(f"{text!r} is larger than any memory (1 EiB)")
    return int(size)
