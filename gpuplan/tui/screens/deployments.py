"""What runs: deploys under way on top, then deployments, then the hosts nobody knows anything of.

It is looked at every few seconds while this screen, or one above it that shows the same, is seen; one look at a time,
each told with its age. Connections stay open between the looks, for a while also after the screen was left.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.reactive import reactive
from textual.widgets import Static

from gpuplan.errors import GpuplanError
from gpuplan.operations.status import DeploymentSeen
from gpuplan.present.document import Lines, Role, wrapped
from gpuplan.present.status_rows import hosts_text
from gpuplan.tui.background import BrokenOff, in_thread
from gpuplan.tui.deployment_actions import DeploymentActions, DeploymentDocument, DeploymentList
from gpuplan.tui.deployments_state import (
    DEPLOYMENT,
    EVERY_SECONDS,
    IDLE_SECONDS,
    NOTHING_KNOWN,
    RUN,
    DeploymentRows,
    DeploymentsState,
    runs_seen,
)
from gpuplan.tui.rendering import safe
from gpuplan.tui.screens.deployment_detail import DeploymentScreen
from gpuplan.tui.screens.stop import ChangeScreen
from gpuplan.tui.widgets.key_bar import KeyBar
from gpuplan.tui.widgets.rows import Rows

if TYPE_CHECKING:
    from gpuplan.tui.services import StatusLooks

LEAST_BELOW = 6
"""Lines for each of the two parts below the list, at least; on tall screens a quarter. The rest is scrolled."""
LEAST_ABOVE = 9
"""Lines of the list, the header and the footer, which low screens keep."""


class DeploymentsScreen(DeploymentActions):
    """The list."""

    CSS_PATH = "deployments.tcss"
    HELP: ClassVar[str] = (
        "Every deployment on the hosts of the inventory: its state, address, requests running and waiting, how much of "
        "the KV cache is in use, and since when it runs. Enter shows all of one. Hosts that did not answer are named "
        "below: what runs there is not known."
    )

    known: reactive[DeploymentsState] = reactive(NOTHING_KNOWN)
    """What was read last."""

    def __init__(self) -> None:
        super().__init__()
        self._looks: StatusLooks | None = None
        self._looking = False
        self._again = False
        self._hidden_since: float | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="deployments-age", classes="bar")
        yield DeploymentList(id="deployments-rows")
        yield DeploymentDocument(self._more, id="deployments-more")
        yield DeploymentDocument(self._hosts, id="deployments-hosts")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#deployments-rows").focus()
        self.set_interval(EVERY_SECONDS, self.due)
        self.set_interval(1.0, self._tick)
        self._tick()
        self.due()

    def on_unmount(self) -> None:
        if self._looks is not None:
            self._looks.close()

    def on_screen_resume(self) -> None:
        self._tick()
        self.due()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)

    # ------------------------------------------------------------------ looking

    @property
    def watched(self) -> bool:
        """Whether what runs is on the screen."""
        if self.app.current_mode != "deployments":
            return False
        top = self.app.screen
        return top is self or isinstance(top, (DeploymentScreen, ChangeScreen))

    def due(self) -> None:
        """It is time for the next look, if anybody sees it; connections nobody needs are ended after a while."""
        if self.watched:
            self._hidden_since = None
            self.look()
            return
        now = self.gpuplan.now().timestamp()
        if self._hidden_since is None:
            self._hidden_since = now
        elif now - self._hidden_since > IDLE_SECONDS and self._looks is not None and not self._looking:
            self._looks.close()
            self._looks = None

    def look(self, *, dial: bool = False) -> None:
        """See what runs now; during a look, the next follows at once where hosts are to be called."""
        if self._looking:
            self._again = self._again or dial
            return
        self._looking = True
        self.known = replace(self.known, reading=True)
        self._look(dial)

    @work(group="deployments")
    async def _look(self, dial: bool) -> None:
        services = self.gpuplan.services
        try:
            if self._looks is None:
                self._looks = await in_thread(services.watch_deployments)
            report = await in_thread(partial(self._looks.look, dial=dial))
        except BrokenOff:
            self.known = replace(self.known, reading=False)
        except GpuplanError as error:
            self.known = self.known.failed(error)
        else:
            self.known = replace(
                self.known, report=report, read_at=self.gpuplan.now(), reading=False, error=None, hint=None
            )
        finally:
            self._looking = False
        if self._again:
            self._again = False
            self.look(dial=True)

    # ------------------------------------------------------------------ showing

    def watch_known(self) -> None:
        if self.is_mounted:
            self._show()

    def _show(self) -> None:
        rows = self._rows
        source = DeploymentRows(self.known)
        width = rows.scrollable_content_region.width
        rows.show(source, header=source.header(width) if len(source) and width else ())
        self._show_below()

    def _show_below(self, *, other: bool = False) -> None:
        """What belongs to the row under the cursor, and the hosts; each as high as it needs. `other`: another row."""
        room = (self.size.height - LEAST_ABOVE) // 2
        most = max(3, min(room, max(LEAST_BELOW, self.size.height // 4)))
        for name, make in (("#deployments-more", self._more), ("#deployments-hosts", self._hosts)):
            document = self.query_one(name, DeploymentDocument)
            lines = len(make(max(40, self.size.width - 3)))
            document.styles.height = min(lines + 1, most)
            document.display = lines > 0
            document.show_document(make, top=other and name == "#deployments-more")
        self._tell_age()
        self.refresh_bindings()

    def _tick(self) -> None:
        """The age of what is shown, and how far the deploys are; the app follows them."""
        if self.watched:
            self.known = replace(self.known, runs=runs_seen(self.gpuplan.feeds.values()))
            self._tell_age()

    def _tell_age(self) -> None:
        self.query_one("#deployments-age", Static).update(safe(self.known.age_words(self.gpuplan.now())))

    def _more(self, width: int) -> Lines:
        error = self.known.error_lines(width)
        key = self._rows.key
        source = self._rows.source
        if isinstance(source, DeploymentRows) and key is not None:
            return (*error, *source.more(key, width))
        return error

    def _hosts(self, width: int) -> Lines:
        report = self.known.report
        if report is None:
            if self.known.error is not None:
                return ()
            return wrapped("The hosts are asked what runs on them.", width, role=Role.DIM)
        return hosts_text(len(report.deployments), report.silent, report.hosts, width)

    @property
    def _rows(self) -> Rows:
        return self.query_one("#deployments-rows", Rows)

    # ------------------------------------------------------------------ the row that is meant

    def meant(self) -> DeploymentSeen | None:
        key = self._rows.key
        return self.known.find(key[1]) if isinstance(key, tuple) and key[0] == DEPLOYMENT else None

    @on(Rows.Highlighted, "#deployments-rows")
    def _highlighted(self) -> None:
        self._show_below(other=True)

    @on(Rows.Selected, "#deployments-rows")
    def _selected(self, message: Rows.Selected) -> None:
        self._open(message.key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "back_to_list":
            return False
        if action == "open_deployment" and self._rows.key is None:
            return None
        return super().check_action(action, parameters)

    def action_open_deployment(self) -> None:
        self._open(self._rows.key)

    def _open(self, key: Hashable) -> None:
        if not isinstance(key, tuple):
            return
        if key[0] == RUN:
            feed = self.gpuplan.feeds.get(key[1])
            if feed is not None:
                self.gpuplan.open_run(feed.run)
        elif self.known.find(key[1]) is not None:
            screen = DeploymentScreen(key[1], self.look)
            self.app.push_screen(screen.data_bind(DeploymentsScreen.known))
