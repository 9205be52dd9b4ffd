"""How the text of an argument becomes its value, kind by kind, as vLLM 0.33 reads it (`engine/arg_utils.py`).

Every function raises ValueError whose text completes "…: " and says what is accepted; nothing here names a
flag.
"""

import json
import math
import re
from typing import Any

from gpuplan.engine.flags import Flag

_HUMAN = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)([kKmMgGtT])", re.ASCII)
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_QUOTED_OR_NUMBER = re.compile(r'("(?:[^"\\]|\\.)*")|\b\d{1,30}(?:\.\d{1,30})?[kKmMgGtT]\b', re.ASCII)
_DIGITS = re.compile(r"[+-]?\d(?:_?\d){0,18}", re.ASCII)


def human_readable(text: str) -> int:
    """`32k` is 32,000, `32K` is 32,768, `25.6k` is 25,600; binary suffixes take whole numbers only."""
    text = text.strip()
    match = _HUMAN.fullmatch(text)
    if match is None:
        return whole(text)
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    if "." in number:
        raise ValueError(f"{text} has decimals with a binary suffix; did you mean {number}{suffix.lower()}?")
    return int(number) * _BINARY[suffix]


def whole(text: str) -> int:
    """A whole number of at most 19 digits."""
    stripped = text.strip()
    if _DIGITS.fullmatch(stripped) is None:
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(stripped)


def decimal(text: str) -> float:
    """A finite number."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]!r} is not a finite number")
    return number


def length(text: str) -> int | str:
    """A length in tokens; `auto` and -1 both mean `auto`."""
    if text.strip().lower() in ("auto", "-1"):
        return "auto"
    return human_readable(text)


def parse_json(text: str) -> Any:
    """A JSON value; the message names the column that is wrong."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{_short(text)!r} is not JSON ({error.msg} at column {error.colno})") from None
    except (RecursionError, ValueError):
        raise ValueError(f"{_short(text)!r} is not JSON that can be read") from None


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object; bare numbers may carry a suffix (`{"cpu_bytes_to_use": 80m}`)."""
    value = parse_json(_QUOTED_OR_NUMBER.sub(_expand, text))
    if not isinstance(value, dict):
        raise ValueError(f"{_short(text)!r} is not a JSON object")
    return value


def _expand(match: re.Match[str]) -> str:
    return match.group(1) or str(human_readable(match.group()))


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def convert(flag: Flag, text: str, *, check_choices: bool = True) -> Any:
    """The value of one text for a flag; None where the flag allows `None`.

    Raises ValueError for a text the engine's parser would refuse. `check_choices` off: an older release may
    know other choices.
    """
    if flag.optional and text in ("", "None"):
        return None
    match flag.kind:
        case "int":
            value: Any = whole(text)
        case "float":
            value = decimal(text)
        case "size":
            value = human_readable(text)
        case "length":
            value = length(text)
        case "json":
            value = parse_json(text)
        case "config":
            value = parse_object(text)
        case "json_or_str":
            value = parse_json(text) if text.strip().startswith("{") and text.strip().endswith("}") else text
        case "name":
            value = text.lower().replace("-", "_")
        case _:
            value = text
    if flag.choices and check_choices and str(value) not in flag.choices:
        raise ValueError(f"{_short(text)!r} is not one of {', '.join(flag.choices)}")
    return value
