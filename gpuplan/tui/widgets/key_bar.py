"""The keys that work now, on one line: one render and no widget a key, so a change of what works costs next to nothing."""

from dataclasses import dataclass
from typing import Any

from textual import events
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from gpuplan.present.document import width_of

KEPT = 2
"""Entries at the end, help and quitting, that stay when the line is too short; those before them go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """One key and what it does."""

    key: str
    """As Textual names it."""
    shown: str
    """As people read it."""
    text: str
    enabled: bool

    @property
    def width(self) -> int:
        return width_of(self.shown) + 1 + width_of(self.text)


class KeyBar(Widget):
    """The footer. The palette's key stands at its right end."""

    DEFAULT_CSS = """
    KeyBar { dock: bottom; height: 1; background: $footer-background; color: $footer-foreground; }
    """

    def __init__(self, *, palette: bool = True) -> None:
        super().__init__()
        self._palette = palette
        self._entries: tuple[KeyEntry, ...] = ()
        self._last: KeyEntry | None = None

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._updated)
        self._read()

    def _updated(self, screen: Screen[Any]) -> None:
        if screen is self.screen:
            self._read()

    def _read(self) -> None:
        """Look at what works now; drawn again only if something differs."""
        active = self.screen.active_bindings
        palette = self.app.COMMAND_PALETTE_BINDING
        found: dict[str, KeyEntry] = {}
        last = None
        for key, (_, binding, enabled, _) in active.items():
            entry = KeyEntry(
                key=key,
                shown=self.app.get_key_display(binding),
                text=binding.description,
                enabled=enabled,
            )
            if key == palette:
                last = entry
            elif binding.show:
                found.setdefault(binding.action, entry)
        before = (self._entries, self._last)
        self._entries, self._last = tuple(found.values()), last if self._palette else None
        if before != (self._entries, self._last):
            self.refresh()

    @property
    def placed(self) -> tuple[tuple[int, KeyEntry], ...]:
        """The entries there is room for, each with its first cell."""
        room = self.size.width - 1
        right = () if self._last is None else ((room - self._last.width, self._last),)
        room -= self._last.width + 2 if self._last is not None else 0
        entries = list(self._entries)
        while len(entries) > KEPT and sum(entry.width + 2 for entry in entries) > room:
            entries.pop(-KEPT - 1)
        at, placed = 1, []
        for entry in entries:
            if at + entry.width <= room + 1:
                placed.append((at, entry))
            at += entry.width + 2
        return (*placed, *right)

    def render(self) -> Content:
        pieces: list[Content] = []
        at = 0
        for start, entry in self.placed:
            key = Content.styled(entry.shown, "bold $footer-key-foreground" if entry.enabled else "dim")
            text = Content.styled(f" {entry.text}", "" if entry.enabled else "dim")
            pieces += [Content(" " * (start - at)), key, text]
            at = start + entry.width
        return Content("").join(pieces)

    async def on_click(self, event: events.Click) -> None:
        for start, entry in self.placed:
            if start <= event.x < start + entry.width:
                self.app.simulate_key(entry.key)
