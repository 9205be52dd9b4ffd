"""What a user's mapping may hold, as tables of keys: reading one and its JSON Schema follow from the same table.

All faults of a mapping are found in one go. An empty key counts as left out, an unknown one is a fault.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gpuplan.sources.documents import Location, did_you_mean

Schema = dict[str, Any]
"""JSON Schema."""


class Findings:
    """What is wrong with the values of a document: the first of it in words, the rest counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.found: list[tuple[Location, str]] = []
        self.uncounted = 0

    def add(self, at: Location, text: str) -> None:
        if len(self.found) < self._most:
            self.found.append((at, text))
        else:
            self.uncounted += 1

    def add_unknown(self, at: Location, known: Mapping[str, object]) -> None:
        """The key `at` ends in is not among the known ones."""
        if len(self.found) >= self._most:
            self.uncounted += 1
            return
        near = did_you_mean(str(at[-1]), known)
        self.add(at, f"unknown key{near}" if near else f"unknown key; known here: {', '.join(known)}")


class Kind(NamedTuple):
    """What a value may be."""

    read: Callable[[Any, Location, Findings], Any]
    """Turns what was written into what is meant; the answer counts only while there are no findings."""
    schema: Schema
    definitions: Mapping[str, Schema] = {}
    """Of the tables the schema refers to, by name."""
    empty: Any = None
    """What stands for a key left out."""


class Key(NamedTuple):
    """One key of a table."""

    kind: Kind
    about: str = ""
    required: bool = False
    default: Any = None


def scalar(read: Callable[[Any], Any], schema: Schema) -> Kind:
    """A value of one piece; `read` raises ValueError with the fault."""

    def collect(value: Any, at: Location, findings: Findings) -> Any:
        try:
            return read(value)
        except ValueError as error:
            findings.add(at, str(error))
            return None

    return Kind(collect, schema)


def whole(least: int, most: int) -> Kind:
    """A whole number within bounds, both of them included."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("must be a whole number")
        if value < least:
            raise ValueError(f"must be at least {least}")
        if value > most:
            raise ValueError(f"must be at most {most}")
        return int(value)

    return scalar(read, {"type": "integer", "minimum": least, "maximum": most})


def number(least: float, most: float) -> Kind:
    """A number within bounds, both of them included."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError("must be a number without a unit, for example 2.5")
        if value < least:
            raise ValueError(f"must be at least {least:g}")
        if value > most:
            raise ValueError(f"must be at most {most:g}")
        return float(value)

    return scalar(read, {"type": "number", "minimum": least, "maximum": most})


def table(name: str, keys: Mapping[str, Key], about: str = "") -> Kind:
    """A mapping of these keys, read as a dict of all of them."""
    empty = {word: key.kind.empty if key.default is None else key.default for word, key in keys.items()}

    def read(value: Any, at: Location, findings: Findings) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            findings.add(at, "must be a mapping of keys to values")
            return empty
        held = dict(empty)
        for word, key in keys.items():
            given = value.get(word)
            if given is not None:
                held[word] = key.kind.read(given, (*at, word), findings)
            elif key.required:
                findings.add((*at, word), "this key is required")
        for word in value:
            if word not in keys:
                findings.add_unknown((*at, word), keys)
        return held

    definitions = {name: _schema_of_table(keys, about)}
    for key in keys.values():
        definitions.update(key.kind.definitions)
    return Kind(read, {"$ref": f"#/$defs/{name}"}, definitions, empty)


def list_of(kind: Kind, *, least: int = 0, most: int | None = None, alone: bool = False) -> Kind:
    """A list of one kind of value; `alone` lets a single mapping be written without its list."""

    def read(value: Any, at: Location, findings: Findings) -> list[Any]:
        items = [value] if alone and isinstance(value, dict) else value
        if not isinstance(items, list):
            findings.add(at, "must be a list")
            return []
        if not _counted(items, least, most, at, findings):
            return []
        return [kind.read(item, (*at, index), findings) for index, item in enumerate(items)]

    schema: Schema = {"type": "array", "items": kind.schema}
    schema |= {"minItems": least} if least else {}
    schema |= {"maxItems": most} if most is not None else {}
    return Kind(read, {"anyOf": [kind.schema, schema]} if alone else schema, kind.definitions, ())


def mapping_of(key: Callable[[str], str], kind: Kind, schema: Schema, most: int | None = None) -> Kind:
    """A mapping whose keys the user chooses; `key` raises ValueError for a wrong one, `schema` is that of a key."""

    def read(value: Any, at: Location, findings: Findings) -> dict[str, Any]:
        if not isinstance(value, dict):
            findings.add(at, "must be a mapping of keys to values")
            return {}
        if not _counted(value, 0, most, at, findings):
            return {}
        held = {}
        for word, item in value.items():
            try:
                key(word)
            except ValueError as error:
                findings.add((*at, word), str(error))
            held[word] = kind.read(item, (*at, word), findings)
        return held

    whole_schema: Schema = {"type": "object", "propertyNames": schema, "additionalProperties": kind.schema}
    whole_schema |= {"maxProperties": most} if most is not None else {}
    return Kind(read, whole_schema, kind.definitions, {})


def json_schema(name: str, kind: Kind) -> Schema:
    """JSON Schema of a document that holds the table of this name."""
    definitions = dict(kind.definitions)
    root = definitions.pop(name)
    return {**root, "$defs": definitions}


def _counted(
    items: list[Any] | dict[str, Any], least: int, most: int | None, at: Location, findings: Findings
) -> bool:
    if len(items) < least:
        findings.add(at, "must not be empty")
        return False
    if most is not None and len(items) > most:
        findings.add(at, f"has {len(items)} entries; at most {most} are read")
        return False
    return True


def _schema_of_table(keys: Mapping[str, Key], about: str) -> Schema:
    required = [word for word, key in keys.items() if key.required]
    return {
        **({"description": about} if about else {}),
        "type": "object",
        "properties": {word: _schema_of_key(key) for word, key in keys.items()},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _schema_of_key(key: Key) -> Schema:
    schema = key.kind.schema
    if not key.required:
        choices = schema.get("anyOf", [schema])
        schema = {"anyOf": [*choices, {"type": "null"}]}
    return {
        **schema,
        **({"description": key.about} if key.about else {}),
        **({"default": key.default} if key.default is not None else {}),
    }
