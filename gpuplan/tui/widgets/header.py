"""One line on top of every screen: the modes, the source of the figures, and what must not be overlooked."""

from typing import TYPE_CHECKING, cast

from textual import events
from textual.content import Content
from textual.css.query import NoMatches
from textual.widget import Widget

from gpuplan.present.app_text import Tab, header_line, source_label, too_small
from gpuplan.present.document import Line, width_of
from gpuplan.tui import commands
from gpuplan.tui.offers import shown_keys
from gpuplan.tui.rendering import content_of

if TYPE_CHECKING:
    from gpuplan.tui.shell import ShellApp

MODES = ("fleet", "plan", "deployments")
NARROWEST, LOWEST = 60, 15
"""Below it nothing but a sentence is shown, in the place of the screen."""


class Header(Widget):
    """The modes can be clicked."""

    DEFAULT_CSS = """
    Header { dock: top; height: 1; background: $panel; color: $foreground; }
    """
    can_focus = False

    def on_mount(self) -> None:
        for name in ("state", "running", "theme"):
            self.watch(self.app, name, self._again, init=False)

    def _again(self) -> None:
        self.refresh()

    def on_resize(self) -> None:
        self.refresh()

    def render(self) -> Content:
        size = self.app.size
        if size.width < NARROWEST or size.height < LOWEST:
            return Content(too_small(size.width, size.height, (NARROWEST, LOWEST)))
        return content_of((self.header,))

    @property
    def header(self) -> Line:
        """The line as it is shown."""
        app = cast("ShellApp", self.app)
        source = app.state.source
        return header_line(
            self.size.width,
            self._tabs(app),
            source=source_label(source.kind.value, source.name) if source is not None else "",
            read_only=app.read_only,
            running=app.running,
        )

    def _tabs(self, app: "ShellApp") -> tuple[Tab, ...]:
        shown = app.current_mode
        return tuple(
            Tab(
                key=shown_keys(commands.BY_ID[f"app.{mode}"], app.keymap, most=1),
                name=mode.capitalize(),
                current=mode == shown,
            )
            for mode in MODES
        )

    async def on_click(self, event: events.Click) -> None:
        line = self.header
        first = len(line) and line[0].text.strip() == self.app.title
        at = sum(width_of(span.text) for span in line[:first])
        for span, mode in zip(line[first:], MODES, strict=False):
            if at <= event.x < at + width_of(span.text):
                await self.app.run_action(f"app.switch_mode('{mode}')")
                return
            at += width_of(span.text)


def has_header(node: Widget) -> bool:
    """Whether a screen has its header."""
    try:
        node.query_one(Header)
    except NoMatches:
        return False
    return True
