"""The app around its screens: themes, keys, palette, help, header, what is refused and why."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on, work
from textual.binding import Binding
from textual.command import CommandPalette, SearchIcon
from textual.dom import DOMNode
from textual.filter import LineFilter
from textual.reactive import reactive
from textual.screen import Screen

from gpuplan.present.app_text import CURRENT, KeyGroup, KeyHelp
from gpuplan.present.document import visible
from gpuplan.sources.remembered import Remembered
from gpuplan.tui import commands, themes
from gpuplan.tui.background import in_thread
from gpuplan.tui.commands import Command
from gpuplan.tui.keymap import keys_of, read_keymap
from gpuplan.tui.offers import Offer, place_nodes, places_of, reason, shown_key, shown_keys
from gpuplan.tui.palette import Commands
from gpuplan.tui.reading import ReadingApp, utc_now
from gpuplan.tui.rendering import Harmless
from gpuplan.tui.screens.help import HelpScreen
from gpuplan.tui.services import Services, SourceKind
from gpuplan.tui.settings import Preferences
from gpuplan.tui.state import FleetState
from gpuplan.tui.widgets.header import LOWEST, NARROWEST, Header, has_header

if TYPE_CHECKING:
    from textual.actions import ActionParseResult

READ_ONLY = "the app was opened with --read-only"
CANNOT_ACT = {
    SourceKind.SNAPSHOT: "the fleet is a snapshot; open the app with the inventory alone: gpuplan tui -i FILE",
    SourceKind.DECLARED: "the hardware is declared, no host is reached; open the app without --no-probe",
}
TOAST_SECONDS = 8
HARMLESS = Harmless()


class ShellApp(ReadingApp):
    """An app with everything that is the same on all of its screens."""

    TITLE = "gpuplan"
    CSS_PATH = Path(__file__).with_name("app.tcss")
    COMMANDS: ClassVar[set[Any]] = {Commands}
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - no class variable in the base class
        (0, "-tiny"),
        (NARROWEST, "-compact"),
        (100, "-roomy"),
        (140, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (LOWEST, "-low"), (32, "-tall")]  # noqa: RUF012 - see above
    NOTIFICATION_TIMEOUT = TOAST_SECONDS

    running: reactive[str] = reactive("")
    """The deploy under way, as the header tells it: `deploying qwen3-32b: load`."""

    def __init__(
        self,
        services: Services,
        *,
        read_only: bool = False,
        preferences: Preferences | None = None,
        environ: Mapping[str, str] = os.environ,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__(services, now=now)
        self.read_only = read_only
        self.preferences = preferences or Preferences()
        self.refresh_seconds = self.preferences.settings.refresh_seconds
        chosen = read_keymap(self.preferences.settings.keymap, commands.ALL)
        self.keymap = chosen.keys
        self._complaints = [*chosen.complaints]
        self._keeps_theme = False
        if "TEXTUAL_ANIMATIONS" not in environ:
            self.animation_level = "none"
        for theme in themes.OURS:
            self.register_theme(theme)
        self.theme = self._first_theme(environ.get(themes.VARIABLE, ""))
        self.set_keymap(chosen.keys)
        palette = keys_of(commands.BY_ID[commands.PALETTE], chosen.keys)[0]
        self.COMMAND_PALETTE_BINDING = palette  # type: ignore[misc]  # the footer looks for it here

    def _first_theme(self, named: str) -> str:
        set_one = self.preferences.settings.theme
        for name in [name.strip() for name in named.split(",")] + [set_one or ""]:
            if name in self.available_themes:
                return name
        if set_one is not None:
            ours = ", ".join(themes.NAMES)
            self._complaints.append(f"theme {visible(set_one)!r}: there is none of that name; ours: {ours}")
        return themes.DEFAULT

    @on(events.Mount)
    def _opened(self) -> None:
        self._keeps_theme = True
        self.screen_change_signal.subscribe(self, self._frame)
        problem = self.preferences.problem
        if problem is not None:
            self.warn(f"{problem.message}\nThe defaults are used until it is mended.", title="config.toml")
        if self._complaints:
            self.warn("\n".join(self._complaints), title="config.toml")

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), HARMLESS]

    def copy_to_clipboard(self, text: str) -> None:
        """Also what is no text: half a character of a file's name."""
        super().copy_to_clipboard(text.encode(errors="replace").decode())

    def warn(self, text: str, *, title: str = "") -> None:
        """A toast with text from anywhere."""
        shown = "\n".join(visible(line) for line in text.split("\n"))
        self.notify(shown, title=title, severity="warning", markup=False)

    # ------------------------------------------------------------------ the frame

    def framed(self, screen: Screen[Any]) -> Screen[Any]:
        """The screen of a mode, with the header on top."""
        screen.compose_add_child(Header())
        return screen

    def _frame(self, screen: Screen[Any]) -> None:
        if screen.is_attached and not screen.is_modal and not has_header(screen):
            screen.mount(Header(), before=0)

    @on(CommandPalette.Opened)
    def _plain_palette(self) -> None:
        """Its icon is in few fonts."""
        for icon in self.screen.query(SearchIcon):
            icon.icon = CURRENT
            icon.styles.color = self.theme_variables["primary"]

    # ------------------------------------------------------------------ commands

    @property
    def why_not_change(self) -> str | None:
        """Why nothing can be started or stopped from here; None: it can."""
        if self.read_only:
            return READ_ONLY
        source = self.state.source
        if source is None or source.acts:
            return None
        return CANNOT_ACT.get(source.kind, "the hosts are not reached")

    def watch_state(self, before: FleetState, now: FleetState) -> None:
        if before.source != now.source:
            self.refresh_bindings()

    def offers(self, screen: Screen[Any]) -> tuple[Offer, ...]:
        """The commands that work on a screen as it is, the innermost place first; hidden ones are left out."""
        found: dict[str, Offer] = {}
        for node in place_nodes(screen):
            for place in places_of(node):
                for command in commands.of(place):
                    state = self._check_action_state(command.action, node)
                    if command.id not in found and state is not False:
                        why = self._why_not(command, node) if state is None else None
                        found[command.id] = Offer(command=command, node=node, why_not=why)
        return tuple(found.values())

    def keys(self, command: Command) -> str:
        """A command's keys as people read them."""
        return shown_keys(command, self.keymap)

    def get_key_display(self, binding: Binding) -> str:
        return binding.key_display or shown_key(binding.key)

    def _check_action_state(self, action: str, default_namespace: DOMNode) -> bool | None:
        state = super()._check_action_state(action, default_namespace)
        if state and action in commands.MUTATING and self.why_not_change is not None:
            return None
        return state

    def _why_not(self, command: Command, node: DOMNode) -> str:
        if command.mutates and self.why_not_change is not None:
            return self.why_not_change
        return reason(node, command.action)

    async def run_action(
        self,
        action: "str | ActionParseResult",
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Do it, or say why it cannot be done now."""
        if not isinstance(action, str):
            return await super().run_action(action, default_namespace, namespaces)
        node = self if default_namespace is None else default_namespace
        here = places_of(node)
        known = next(
            (command for command in commands.ALL if command.action == action and command.place in here), None
        )
        if known is not None and self._check_action_state(action, node) is None:
            self.warn(f"{known.title}: {self._why_not(known, node)}")
            return True
        return await super().run_action(action, default_namespace, namespaces)

    # ------------------------------------------------------------------ actions

    async def action_quit(self) -> None:
        await self.run_action("app.leave")

    def action_help_quit(self) -> None:
        keys = self.keys(commands.BY_ID["app.quit"]).replace(" ", " or ")
        self.notify(f"Press {keys} to leave.", markup=False)

    def action_help(self) -> None:
        """F1."""
        screen = self.screen
        if isinstance(screen, HelpScreen):
            screen.dismiss(None)
            return
        focused = screen.focused
        nodes = list(focused.ancestors_with_self) if focused is not None else [screen]
        about = [text.strip() for node in nodes if (text := getattr(node, "HELP", None))]
        self.push_screen(HelpScreen("Help", about, self._groups(screen)))

    def _groups(self, screen: Screen[Any]) -> tuple[KeyGroup, ...]:
        by_place: dict[str, list[KeyHelp]] = {}
        for offer in self.offers(screen):
            keys = self.keys(offer.command)
            if keys:
                row = KeyHelp(
                    keys=keys, title=offer.command.title, help=offer.command.help, why_not=offer.why_not
                )
                by_place.setdefault(offer.command.place.value, []).append(row)
        groups = [KeyGroup(title=place, rows=tuple(rows)) for place, rows in by_place.items()]
        moves = self._moves(screen)
        at = len(groups) - 1 if len(groups) > 1 else len(groups)
        return (*groups[:at], *moves, *groups[at:])

    def _moves(self, screen: Screen[Any]) -> tuple[KeyGroup, ...]:
        """The keys of the focused widget itself."""
        if screen.focused is None:
            return ()
        titles: dict[str, list[str]] = {}
        for key, active in screen.active_bindings.items():
            if active.node is screen.focused and active.binding.id not in commands.BY_ID:
                titles.setdefault(active.binding.description, []).append(shown_key(key))
        rows = tuple(
            KeyHelp(keys=" ".join(keys[:3]), title=title, help="") for title, keys in titles.items() if title
        )
        return (KeyGroup(title="Here", rows=rows),) if rows else ()

    def action_next_theme(self) -> None:
        self.theme = themes.after(self.theme)
        self.notify(self.theme, title="Theme", timeout=2, markup=False)

    def action_picture(self) -> None:
        self.call_after_refresh(self._save_picture)

    def _save_picture(self) -> None:
        try:
            self.notify(self.save_screenshot(path=str(Path())), title="Picture saved", markup=False)
        except OSError as error:
            self.warn(f"the picture cannot be saved: {error.strerror or error}")

    # ------------------------------------------------------------------ what is kept

    def watch_theme(self, _before: str, name: str) -> None:
        if self._keeps_theme:
            self._keep_theme(name)

    @work(group="keeping")
    async def _keep_theme(self, name: str) -> None:
        said = await in_thread(partial(self.preferences.keep_theme, name))
        if said is not None:
            self.warn(said)

    @property
    def remembered(self) -> Remembered:
        """What was chosen before, in this run of the app and in earlier ones."""
        return self.preferences.remembered

    def remember(self, remembered: Remembered) -> None:
        """Keep what was chosen for the next run."""
        if remembered != self.preferences.remembered:
            self.preferences.remembered = remembered
            self._keep_memory()

    @work(group="keeping")
    async def _keep_memory(self) -> None:
        await in_thread(self.preferences.keep)

    # ------------------------------------------------------------------ failures

    @property
    def failure(self) -> Exception | None:
        """The bug that ended the app."""
        return self._exception

    def _fatal_error(self) -> None:
        """End; who started the app tells what happened, once the terminal is as it was."""
        self._close_messages_no_wait()
