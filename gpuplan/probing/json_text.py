"""JSON inside what a tool printed: found behind warnings and banners, whatever the text; nothing here raises."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

_MOST_STARTS = 64
"""Places tried in one text: junk full of brackets costs no more than that many scans."""
_LARGEST = 2.0**62
_DECODER = json.JSONDecoder()


def documents(text: str) -> Iterator[Any]:
    """Every JSON object or array that begins a line of the text, in order; none when there is none."""
    position = tried = 0
    while tried < _MOST_STARTS:
        start = _next_start(text, position)
        if start is None:
            return
        tried += 1
        try:
            document, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            position = _line_end(text, start)
        else:
            yield document
            position = end


def records(document: object, *names: str) -> list[Mapping[str, Any]]:
    """The objects of an array, or of the array an object holds under one of `names` (or alone); else none."""
    if isinstance(document, Mapping):
        for name in names:
            if isinstance(document.get(name), list):
                return records(document[name])
        return [document] if "gpu" in document else []
    if isinstance(document, list):
        return [entry for entry in document if isinstance(entry, Mapping)]
    return []


def at(entry: object, *path: str) -> Any:
    """What lies at a path of keys; None where the path ends."""
    for key in path:
        if not isinstance(entry, Mapping):
            return None
        entry = entry.get(key)
    return entry


def number(value: object) -> float | None:
    """A finite number given as one, as text (`42`, `32 GB/s`) or as `{"value": 42, "unit": "MB"}`; else None."""
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        words = value.replace("%", " ").split()
        value = _parsed(words[0]) if words else None
    if isinstance(value, int | float) and abs(value) < _LARGEST:  # not true of NaN either
        return float(value)
    return None


def whole(value: object) -> int | None:
    """The number as an int, rounded down; None when it is none."""
    found = number(value)
    return None if found is None else math.floor(found)


def words_of(value: object) -> str:
    """A text value in one line; empty for anything that is not text and for `N/A`."""
    if not isinstance(value, str):
        return ""
    text = " ".join(value.split())
    return "" if text.casefold() in {"n/a", "none", "unknown"} else text


def _parsed(word: str) -> float | None:
    if len(word) > 32:
        return None
    try:
        return float(word)
    except ValueError:
        return None


def _next_start(text: str, position: int) -> int | None:
    """Index of the next `{` or `[` that has only blanks before it in its line."""
    while position < len(text):
        end = _line_end(text, position)
        first = position
        while first < end and text[first] in " \t\r\n":
            first += 1
        if first < end and text[first] in "{[" and _only_blanks(text, position):
            return first
        position = end
    return None


def _only_blanks(text: str, position: int) -> bool:
    """Whether nothing but blanks stands between the line's begin and `position`."""
    begin = text.rfind("\n", 0, position) + 1
    return not text[begin:position].strip()


def _line_end(text: str, position: int) -> int:
    """Index behind the line break after `position`."""
    found = text.find("\n", position)
    return len(text) if found < 0 else found + 1
