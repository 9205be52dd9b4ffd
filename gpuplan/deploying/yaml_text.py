"""Values as YAML that every YAML reader reads as the same JSON values: each text is quoted, so that none is a number or a yes."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PLAIN_KEY = re.compile(r"[a-z][a-z_]*")
_WORDS = frozenset({"yes", "no", "true", "false", "on", "off", "null", "y", "n"})


def yaml_text(document: Mapping[str, Any]) -> str:
    """A mapping as block YAML; values are mappings, lists, texts, numbers, booleans and None."""
    return "\n".join(_mapping(document, "")) + "\n"


def _mapping(document: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in document.items():
        yield from _entry(f"{indent}{_key(str(key))}:", value, indent)


def _entry(start: str, value: Any, indent: str) -> Iterator[str]:
    """A key with its value: on the line where it is small, below where it is not."""
    match value:
        case Mapping() if value:
            yield start
            yield from _mapping(value, f"{indent}  ")
        case list() | tuple() if value:
            yield start
            yield from _items(value, f"{indent}  ")
        case _:
            yield f"{start} {_scalar(value)}"


def _items(values: Sequence[Any], indent: str) -> Iterator[str]:
    for value in values:
        match value:
            case Mapping() if value:
                first, *rest = _mapping(value, f"{indent}  ")
                yield f"{indent}- {first.strip()}"
                yield from rest
            case list() | tuple() if value:
                yield f"{indent}- {_flow(value)}"
            case _:
                yield f"{indent}- {_scalar(value)}"


def _flow(value: Any) -> str:
    """A list in a list, with all that is in it, on one line."""
    match value:
        case Mapping() if value:
            return "{" + ", ".join(f"{_scalar(str(key))}: {_flow(item)}" for key, item in value.items()) + "}"
        case list() | tuple() if value:
            return "[" + ", ".join(map(_flow, value)) + "]"
        case _:
            return _scalar(value)


def _key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) and name not in _WORDS else _scalar(name)


def _scalar(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case Mapping():
            return "{}"
        case list() | tuple():
            return "[]"
        case _:
            return _text(str(value))


_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""What YAML 1.1 and 1.2 want escaped and JSON does not; every one of them has four hexadecimal digits."""


def _text(text: str) -> str:
    """Double quotes with JSON's escapes, and YAML's for what YAML does not call printable."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
