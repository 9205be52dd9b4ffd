"""Choosing a model: the catalogue, found by any letters of a name, or whatever else was typed."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.fuzzy import Matcher
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from gpuplan.errors import GpuplanError
from gpuplan.present.catalogues import model_header, model_line
from gpuplan.present.document import EMPTY, Line, Role, Span, line, visible
from gpuplan.present.numbers import count
from gpuplan.tui.background import in_thread
from gpuplan.tui.rendering import safe
from gpuplan.tui.widgets.rows import NO_ROWS, Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.sources.catalogue.models import CatalogueModel

BESIDE_THE_NAME = 40
"""Cells of a row's other columns."""


class ModelRows:
    """What was typed as it stands, where it is no name of the catalogue, then the models it matches."""

    def __init__(self, typed: str | None, names: Sequence[str], models: "dict[str, CatalogueModel]") -> None:
        self._typed = typed
        self._names = ([typed] if typed is not None else []) + [name for name in names if name != typed]
        self._models = models
        self._index = {name: index for index, name in enumerate(self._names)}

    def __len__(self) -> int:
        return len(self._names)

    def key(self, index: int) -> str:
        return self._names[index]

    def index(self, key: Hashable) -> int | None:
        return self._index.get(key) if isinstance(key, str) else None

    def line(self, index: int, width: int) -> Line:
        name = self._names[index]
        model = self._models.get(name)
        if model is not None:
            return model_line(model, max(20, width - BESIDE_THE_NAME))
        kind = "as typed: a hub id, a directory or a config.json" if name == self._typed else "used before"
        return line(visible(name), Span(f"  {kind}", Role.DIM))


def ranked(text: str, names: Sequence[str]) -> list[str]:
    """Names with the text in them, shortest first, then those with its letters in their order; all of them for no text.

    Only letters and digits count: `qwen3 32b` finds `Qwen/Qwen3-32B`.
    """
    letters = _letters(text)
    if not letters:
        return list(names)
    matcher = Matcher(letters)
    found: list[tuple[int, float, int, str]] = []
    for place, name in enumerate(names):
        if letters in _letters(name):
            found.append((1, -len(name), -place, name))
        elif (score := matcher.match(name)) > 0:
            found.append((0, score, -place, name))
    return [name for *_, name in sorted(found, reverse=True)]


def _letters(text: str) -> str:
    return "".join(char for char in text.casefold() if char.isalnum())


def is_reference(text: str) -> bool:
    """Whether a hub id or a path is meant rather than letters of a name: it is taken as it stands, never for another."""
    return "/" in text or text.startswith((".", "~")) or text.endswith(".json")


class PickModel(ModalScreen[str | None]):
    """Gives the name that was chosen, or None. What was typed last is there again."""

    CSS_PATH = "pick_model.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back", show=False),
        Binding("up", "cursor(-1)", "Up", show=False, priority=True),
        Binding("down", "cursor(1)", "Down", show=False, priority=True),
        Binding("pageup", "page(-1)", "Page up", show=False, priority=True),
        Binding("pagedown", "page(1)", "Page down", show=False, priority=True),
    ]

    def __init__(
        self,
        models: "Callable[[], tuple[CatalogueModel, ...]]",
        *,
        typed: str = "",
        recent: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._read = models
        self._models: dict[str, CatalogueModel] = {}
        self._typed = typed
        self._recent = tuple(recent)

    def compose(self) -> ComposeResult:
        with Vertical(id="pick-box"):
            yield Static("Model", id="pick-title")
            yield Input(
                self._typed,
                placeholder="letters of a name, a hub id, a directory or a config.json",
                id="pick-text",
                compact=True,
                select_on_focus=True,
            )
            yield Static("reading the catalogue…", id="pick-note", markup=False)
            yield Rows(id="pick-rows")
            yield Static("Enter: plan this model · Escape: back", id="pick-keys", markup=False)

    def on_mount(self) -> None:
        self.query_one("#pick-rows", Rows).can_focus = False
        self._load()

    @work(exclusive=True, group="catalogue")
    async def _load(self) -> None:
        try:
            models = await in_thread(self._read)
        except GpuplanError as error:
            self._note(f"{error.message}; {error.hint}" if error.hint else error.message)
        else:
            self._models = {model.name: model for model in models}
        self._find(self.query_one("#pick-text", Input).value)

    @on(Input.Changed, "#pick-text")
    def _typed_more(self, event: Input.Changed) -> None:
        self._find(event.value)

    def _find(self, text: str) -> None:
        text = text.strip()
        known = [name for name in self._recent if name]
        names = [*known, *(name for name in self._models if name not in known)]
        found = ranked(text, names)
        exact = next((name for name in names if name.casefold() == text.casefold()), None)
        rows = self.query_one("#pick-rows", Rows)
        source = ModelRows(text if text and exact is None else None, found, self._models)
        rows.cursor = 0
        header = model_header(max(20, rows.size.width - 1 - BESIDE_THE_NAME)) if self._models else EMPTY
        rows.show(source if len(source) else NO_ROWS, header=header)
        best = exact or (None if is_reference(text) else next(iter(found), None))
        if best is not None:
            rows.move_to(best)
        if self._models:
            self._note(f"{count(len(found))} of {count(len(names))} models")

    def _note(self, words: str) -> None:
        self.query_one("#pick-note", Static).update(safe(words))

    @on(Input.Submitted, "#pick-text")
    def _entered(self) -> None:
        key = self.query_one("#pick-rows", Rows).key
        if isinstance(key, str):
            self.dismiss(key)

    @on(Rows.Selected)
    def _clicked(self, event: Rows.Selected) -> None:
        if isinstance(event.key, str):
            self.dismiss(event.key)

    def action_cursor(self, by: int) -> None:
        self.query_one("#pick-rows", Rows).action_cursor(by)

    def action_page(self, by: int) -> None:
        self.query_one("#pick-rows", Rows).action_page(by)
