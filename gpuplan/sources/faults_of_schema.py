"""What pydantic finds wrong, said in a user's words; a rejected value is never repeated."""

import json
import re
from typing import TYPE_CHECKING, Any

from gpuplan.errors import InventoryError
from gpuplan.sources.documents import decode, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

_EXPECTED = {
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a whole number of sensible size",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "dataclass_type": "must be a mapping of keys to values",
}


def text_of(error: "ErrorDetails") -> str:
    """One sentence about a validation error that is not an unknown key."""
    kind = error["type"]
    context: Mapping[str, Any] = error.get("ctx", {})
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    match kind:
        case "missing":
            return "this key is required"
        case "value_error":
            return str(context["error"])
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "greater_than":
            return f"must be more than {context['gt']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "less_than":
            return f"must be less than {context['lt']}"
        case "too_short":
            return "must not be empty"
        case "too_long":
            return f"has {context['actual_length']} entries; at most {context['max_length']} are read"
        case "literal_error" | "enum":
            return f"must be {context['expected']}"
        case _:
            return error["msg"]


def not_json(path: str, content: bytes, error: "ErrorDetails", *, hint: str) -> InventoryError:
    """What to raise for a document that is not JSON, with line and column; raised at once where it is not UTF-8."""
    decode(path, content)
    problem = str(error.get("ctx", {}).get("error", ""))
    match = re.search(r"^(.*) at line (\d+) column (\d+)$", problem, re.DOTALL)
    reason, line, column = match.groups() if match else (problem, "1", "1")
    truncated = reason.startswith("EOF")
    text = "ends in the middle: the file is truncated" if truncated else f"is not JSON: {shown(reason)}"
    return InventoryError(f"{path}:{line}:{column}: {text}", hint=hint)


def refuse_newer(path: str, content: bytes, *, hint: str) -> None:
    """Raise InventoryError for a document whose `schema_version` is above 1, the one that is read here."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and not isinstance(version, bool) and version > 1:
        raise InventoryError(
            f"{path}: schema_version {version} was written by a newer gpuplan; this one reads 1", hint=hint
        )
