"""A YAML file read by its table of keys: a fault names file, line and key."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpuplan.errors import InventoryError
from gpuplan.sources.documents import Faults, Location, decode, read_bytes
from gpuplan.sources.key_tables import Findings, Kind
from gpuplan.sources.yaml_tree import Node, compose

_MAX_EXAMINED = 200
"""Faults for which line and near miss are searched."""


def read_mapping(path: Path | str, faults: Faults, *, key: str, limit: int, missing_hint: str) -> Node:
    """The mapping that the file is, at most `limit` bytes; `key` is named where it is none. Raises InventoryError."""
    root = compose(decode(path, read_bytes(path, limit=limit, missing_hint=missing_hint)), faults)
    if root is None:
        raise InventoryError(f"{path}: is empty", hint=missing_hint)
    if not isinstance(root.value, dict):
        faults.add("", f"must be a mapping with the key '{key}'", root.line)
        faults.raise_if_any()
    return root


def read_keys(root: Node, table: Kind, faults: Faults) -> Mapping[str, Any]:
    """The file's keys by their table: every key is there. Raises InventoryError when any of them is wrong."""
    findings = Findings(_MAX_EXAMINED)
    keys: Mapping[str, Any] = table.read(root.plain(), (), findings)
    if findings.found:
        faults.uncounted = findings.uncounted
        require_none(root, findings.found, faults)
    return keys


def require_none(root: Node, found: Iterable[tuple[Location, str]], faults: Faults) -> None:
    """Raise InventoryError for what was found, each with its line, and for what `faults` has already."""
    for where, text in found:
        line, written = root.find(where)
        faults.add(written, text, line)
    faults.raise_if_any()
