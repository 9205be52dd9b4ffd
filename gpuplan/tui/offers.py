"""Which commands there are at this moment: one answer for the palette, the help and the keys that are refused."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import format_key
from textual.screen import Screen

from gpuplan.tui import commands
from gpuplan.tui.commands import Command, Place
from gpuplan.tui.keymap import keys_of

WORDS = {"enter": "enter", "backspace": "backspace", "space": "space", "tab": "tab"}
"""Keys whose signs few fonts have."""
NOT_NOW = "not possible at the moment"


@runtime_checkable
class Explains(Protocol):
    """A screen or widget that says why an action cannot be done now."""

    def why_not(self, action: str) -> str | None:
        """The reason `check_action` gave None for it; None: it has none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A command, and the node that does it."""

    command: Command
    node: DOMNode
    why_not: str | None = None
    """Why it cannot be done now."""


def place_nodes(screen: Screen[Any]) -> Iterator[DOMNode]:
    """From the focused widget up to the app; a dialog keeps everything behind it away."""
    nodes = list(screen.focused.ancestors_with_self) if screen.focused is not None else [screen, screen.app]
    for node in nodes:
        yield node
        if node.is_modal:
            return


def places_of(node: DOMNode) -> list[Place]:
    """The places whose commands a node has as its bindings."""
    ids = [
        binding.id
        for kind in reversed(type(node).__mro__)
        for binding in kind.__dict__.get("BINDINGS", ())
        if isinstance(binding, Binding) and binding.id is not None
    ]
    return list(dict.fromkeys(commands.BY_ID[name].place for name in ids if name in commands.BY_ID))


def reason(node: DOMNode, action: str) -> str:
    """Why a node refuses an action."""
    said = node.why_not(action) if isinstance(node, Explains) else None
    return said or NOT_NOW


def shown_keys(command: Command, keymap: Mapping[str, str], *, most: int = 3) -> str:
    """A command's keys as people read them."""
    return " ".join(shown_key(key) for key in keys_of(command, keymap)[:most])


def shown_key(key: str) -> str:
    """`ctrl+p` as `^p`, `question_mark` as `?`."""
    *modifiers, last = key.split("+")
    text = WORDS.get(last) or format_key(last)
    if "ctrl" in modifiers:
        modifiers.remove("ctrl")
        text = f"^{text}"
    return "+".join([*modifiers, text])
