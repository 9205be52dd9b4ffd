"""Reading a JSON document nobody promised anything about: what is absent or of another type is empty."""

from collections.abc import Mapping
from typing import Any

_NOTHING: Mapping[str, Any] = {}


def mapping(value: Any, *keys: str) -> Mapping[str, Any]:
    """The object found by following the keys."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else _NOTHING


def items(value: Any, key: str) -> tuple[Any, ...]:
    """The entries of a list."""
    found = value.get(key) if isinstance(value, Mapping) else None
    return tuple(found) if isinstance(found, list) else ()


def text(value: Any, key: str) -> str:
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else ""


def texts(value: Any, key: str) -> tuple[str, ...]:
    """The entries of a list that are text."""
    return tuple(entry for entry in items(value, key) if isinstance(entry, str))


def text_map(value: Any, key: str) -> Mapping[str, str]:
    """The entries of an object whose values are text."""
    return {name: entry for name, entry in mapping(value, key).items() if isinstance(entry, str)}


def natural(value: Any, key: str) -> int | None:
    """A whole number from 0."""
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None
