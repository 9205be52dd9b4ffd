"""YAML as plain values of which every one knows its line; bounded in depth and in what aliases expand to.

Scalars follow the YAML 1.2 core schema: `on`, `yes` and `22:30` are text, not booleans or base-60 numbers.
Numbers keep the text they were written with, so that a label or variable `1.10` stays `1.10`. Faults name no tag,
alias or value: a password that starts with `!` or `*` and lacks its quotes is one to the parser.
"""

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

from gpuplan.errors import InventoryError
from gpuplan.sources.documents import Faults, Location, key_name, location, shown

_MAX_DEPTH = 32
_MAX_NODES = 500_000
"""Nodes after aliases are expanded."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_DIGITS = 18
_FLOAT = r"[-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?"
_IN_NUMBERS = frozenset("+-.0123456789eE")
_TAG = "a tag is not supported; put a text that starts with ! in quotes"
_CORE = "tag:yaml.org,2002:"
_CONTROL = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]"
_NOT_TEXT = "[\x00\ud800-\udfff]"
"""Patterns are compiled by their first use: printable text needs neither."""


class WrittenInt(int):
    """An integer and the text it was written with."""

    text: str


class WrittenFloat(float):
    """A number and the text it was written with."""

    text: str


Scalar = str | bool | WrittenInt | WrittenFloat | None


class Node:
    """A value with its line (from 1); `size` counts it and everything below, aliases expanded."""

    __slots__ = ("depth", "key_lines", "line", "size", "value")

    def __init__(
        self,
        line: int,
        value: "Scalar | list[Node] | dict[str, Node]",
        *,
        key_lines: dict[str, int] | None = None,
    ) -> None:
        self.line = line
        self.value = value
        self.size = 1
        self.depth = 1
        self.key_lines = key_lines
        """Of a mapping: the line of each key."""

    def plain(self) -> Any:
        """The value without its lines."""
        match self.value:
            case dict():
                return {key: node.plain() for key, node in self.value.items()}
            case list():
                return [node.plain() for node in self.value]
            case _:
                return self.value

    def find(self, path: Location) -> tuple[int, str]:
        """Line and written location of a path; index 0 of what was written without its list is passed over."""
        node, line, parts = self, self.line, []
        for part in path:
            if isinstance(part, int) and not isinstance(node.value, list):
                continue
            parts.append(part)
            match node.value:
                case dict() if isinstance(part, str) and part in node.value:
                    line = (node.key_lines or {}).get(part, line)
                    node = node.value[part]
                case list() if isinstance(part, int) and part < len(node.value):
                    node = node.value[part]
                    line = node.line
                case _:
                    break
        return line, location(parts)


def compose(text: str, faults: Faults) -> Node | None:
    """Read one YAML document; None for an empty one.

    Duplicate keys are added to `faults`. Raises InventoryError for what is not YAML, for tags, for several
    documents and for documents beyond the bounds.
    """
    loader = _LOADER(_checked(text, faults))
    try:
        return _Composer(_events(loader), faults).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        _fail(faults, mark.line + 1 if mark is not None else None, _problem(error, text))
    except yaml.YAMLError:
        _fail(faults, None, "not valid YAML")
    finally:
        loader.dispose()


def _checked(text: str, faults: Faults) -> str:
    bad = None if text.replace("\n", "").isprintable() else re.search(_CONTROL, text)
    if bad is not None:
        line = text.count("\n", 0, bad.start()) + 1
        _fail(faults, line, f"is not text: it holds the control character U+{ord(bad.group()):04X}")
    return text


def _events(loader: Any) -> Iterator[Any]:
    while loader.check_event():
        yield loader.get_event()


def _problem(error: yaml.MarkedYAMLError, text: str) -> str:
    lines = text.split("\n")
    mark = error.problem_mark or error.context_mark
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "not valid YAML: a tab is used for indentation; use spaces"
    reason = ", ".join(part for part in (error.context, error.problem) if part)
    return f"not valid YAML: {shown(reason) if len(reason) > 120 else reason}"


def _fail(faults: Faults, line: int | None, text: str) -> NoReturn:
    place = faults.path if line is None else f"{faults.path}:{line}"
    raise InventoryError(f"{place}: {text}", hint=faults.hint)


class _Composer:
    """Builds nodes from parser events; recursion is bounded by `_MAX_DEPTH`."""

    def __init__(self, events: Iterator[Any], faults: Faults) -> None:
        self._events = events
        self._faults = faults
        self._anchors: dict[str, Node | None] = {}
        self._size = 0

    def document(self) -> Node | None:
        root: Node | None = None
        for event in self._events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    _fail(self._faults, line, "a second document starts here; write one only")
                root = self._node(next(self._events), 1)
        return None if root is None or root.value is None else root

    def _node(self, event: Any, depth: int) -> Node:
        line = event.start_mark.line + 1
        if depth > _MAX_DEPTH:
            _fail(self._faults, line, f"nested more than {_MAX_DEPTH} levels deep")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, line, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = Node(line, _scalar(event, self._faults))
        elif isinstance(event, yaml.SequenceStartEvent):
            self._refuse_tag(event, "seq")
            node = self._sequence(line, depth)
        else:
            self._refuse_tag(event, "map")
            node = self._mapping(line, depth)
        self._count(1, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _count(self, nodes: int, line: int) -> None:
        self._size += nodes
        if self._size > _MAX_NODES:
            _fail(self._faults, line, f"holds more than {_MAX_NODES:,} values once aliases are expanded")

    def _alias(self, anchor: str | None, line: int, depth: int) -> Node:
        node = self._anchors.get(anchor or "")
        if node is None:
            reason = "refers to what it is part of" if anchor in self._anchors else "has no anchor before it"
            _fail(self._faults, line, f"an alias {reason}; put a text that starts with * in quotes")
        if depth + node.depth > _MAX_DEPTH:
            _fail(self._faults, line, f"nested more than {_MAX_DEPTH} levels deep")
        self._count(node.size, line)
        return node

    def _sequence(self, line: int, depth: int) -> Node:
        items: list[Node] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._node(event, depth + 1))
        return _branch(Node(line, items), items)

    def _mapping(self, line: int, depth: int) -> Node:
        items: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        key_lines: dict[str, int] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key_line = event.start_mark.line + 1
            if not isinstance(event, yaml.ScalarEvent):
                _fail(self._faults, key_line, "a key must be a word")
            key = event.value
            value = self._node(next(self._events), depth + 1)
            if key == "<<" and event.implicit[0]:
                merged |= self._merged(value, key_line)
            elif key in items:
                self._faults.add(
                    "", f"the key {key_name(key)!r} is repeated, first on line {key_lines[key]}", key_line
                )
            else:
                items[key], key_lines[key] = value, key_line
        branches = [*items.values(), *merged.values()]
        return _branch(Node(line, merged | items, key_lines=key_lines), branches)

    def _merged(self, value: Node, line: int) -> dict[str, Node]:
        sources = value.value if isinstance(value.value, list) else [value]
        merged: dict[str, Node] = {}
        for source in sources:
            if not isinstance(source.value, dict):
                _fail(self._faults, line, "'<<' takes a mapping or a list of mappings")
            for key, node in source.value.items():
                merged.setdefault(key, node)
        return merged

    def _refuse_tag(self, event: Any, kind: str) -> None:
        if event.tag not in (None, "!", _CORE + kind):
            _fail(self._faults, event.start_mark.line + 1, _TAG)


def _branch(node: Node, children: "list[Node]") -> Node:
    node.size += sum(child.size for child in children)
    node.depth += max((child.depth for child in children), default=0)
    return node


def _scalar(event: Any, faults: Faults) -> Scalar:
    text: str = event.value
    if not text.isprintable() and re.search(_NOT_TEXT, text):
        _fail(faults, event.start_mark.line + 1, "holds a character that is not text")
    if event.tag in (_CORE + "str", "!"):
        return text
    if event.tag is not None:
        _fail(faults, event.start_mark.line + 1, _TAG)
    if not event.implicit[0]:
        return text
    return _resolved(text)


def _resolved(text: str) -> Scalar:
    """The YAML 1.2 core schema, without hexadecimal and octal numbers, infinities and more than 18 digits."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text[0] in "tT"
    if not _IN_NUMBERS.issuperset(text):
        return text
    digits = text[1:] if text[0] in "+-" else text
    if digits.isdigit() and len(digits) <= _MAX_DIGITS:
        whole = WrittenInt(text)
        whole.text = text
        return whole
    if re.fullmatch(_FLOAT, text):
        number = WrittenFloat(text)
        number.text = text
        return number
    return text
