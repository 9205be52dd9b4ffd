"""All of one deployment, as it goes on: `gpuplan status NAME`, and what can be done about it.

State, load and members are those of the list behind; what the engine measured is read from its log when the screen is
opened and again on demand.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from textual import work
from textual.app import ComposeResult
from textual.reactive import reactive
from textual.widgets import Static

from gpuplan.errors import GpuplanError
from gpuplan.operations.status import DeploymentSeen
from gpuplan.present.document import EMPTY, Lines, Role, visible, wrapped
from gpuplan.present.outcome_text import question_command
from gpuplan.present.status_rows import keep_alive_text
from gpuplan.present.status_text import deployment_text, duration
from gpuplan.tui.background import BrokenOff, in_thread
from gpuplan.tui.deployment_actions import DeploymentActions, DeploymentDocument
from gpuplan.tui.deployments_state import NOTHING_KNOWN, DeploymentsState
from gpuplan.tui.rendering import safe
from gpuplan.tui.widgets.key_bar import KeyBar

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.domain.deployment import Actual


class Look(Protocol):
    """See what runs now."""

    def __call__(self, *, dial: bool = False) -> None: ...


class DeploymentScreen(DeploymentActions):
    """One deployment."""

    HELP: ClassVar[str] = (
        "All of one deployment: its containers, requests and KV cache, what was predicted against what the engine "
        "measured, the devices, findings with what helps."
    )

    known: reactive[DeploymentsState] = reactive(NOTHING_KNOWN)
    """What the list knows; bound to it."""

    def __init__(self, deployment: str, look: Look) -> None:
        super().__init__()
        self.deployment = deployment
        """Its name."""
        self._look = look
        self._last: DeploymentSeen | None = None
        self._actual: Actual | None = None
        self._measured_at: datetime | None = None
        self._measuring = False
        self._gone = False
        self._error: GpuplanError | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="deployment-age", classes="bar")
        yield DeploymentDocument(self._lines, id="deployment-text")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#deployment-text").focus()
        self.set_interval(1.0, self._tell_age)
        self._measure()
        self._show()

    # ------------------------------------------------------------------ what is known

    def watch_known(self) -> None:
        seen = self.known.find(self.deployment)
        before = self._last
        if seen is not None:
            self._last = seen
        if not self.is_mounted:
            return
        if seen is not None and before is not None and seen.deployment.state is not before.deployment.state:
            self._measure()
        was_gone, self._gone = self._gone, seen is None and before is not None
        self._show(top=self._gone and not was_gone)

    def meant(self) -> DeploymentSeen | None:
        return self.known.find(self.deployment)

    def look(self, *, dial: bool = False) -> None:
        self._look(dial=dial)
        if dial:
            self._measure()

    @work(exclusive=True, group="deployment-measure")
    async def _measure(self) -> None:
        """What the engine printed of itself, and what the devices report."""
        self._measuring = True
        self._show()
        services = self.gpuplan.services
        try:
            report = await in_thread(lambda: services.deployments(self.deployment))
        except BrokenOff:
            return
        except GpuplanError as error:
            self._error = error
        else:
            self._error = None
            self._actual = next((one.deployment.actual for one in report.deployments), None)
            self._measured_at = self.gpuplan.now()
        self._measuring = False
        self._show()

    # ------------------------------------------------------------------ showing

    def _show(self, *, top: bool = False) -> None:
        """`top`: what is new stands at the top."""
        self.query_one("#deployment-text", DeploymentDocument).show_document(self._lines, top=top)
        self._tell_age()
        self.refresh_bindings()

    def _tell_age(self) -> None:
        now = self.gpuplan.now()
        words = self.known.age_words(now)
        if self._measured_at is not None:
            seconds = max(0, round((now - self._measured_at).total_seconds()))
            words += f" · logs and devices {duration(seconds)} ago"
        if self._measuring:
            words += " · reading its logs…"
        self.query_one("#deployment-age", Static).update(safe(words))

    def _lines(self, width: int) -> Lines:
        lines: list[Lines] = [self.known.error_lines(width)]
        seen = self.meant()
        if seen is None and self.known.report is not None:
            gone = f"{self.deployment} is gone: no host that answers knows it any more. This was seen last:"
            lines.append(wrapped(gone, width, role=Role.WARNING))
        seen = seen or self._last
        if seen is None:
            return (*lines[0], *wrapped(f"{self.deployment} is looked for.", width, role=Role.DIM))
        deployment = replace(seen.deployment, actual=seen.deployment.actual or self._actual)
        silent = self.known.report.silent if self.known.report is not None else ()
        lines.append(deployment_text(deployment, seen.facts, silent, width))
        request = question_command(deployment)
        if request is not None:
            lines.append(wrapped(request, width, role=Role.COMMAND))
        lines += [(EMPTY,), keep_alive_text(deployment, width)]
        if self._error is not None:
            said = f"what the engine measured is not known: {visible(self._error.message)}"
            lines += [(EMPTY,), wrapped(said, width, role=Role.WARNING)]
        return tuple(line for part in lines for line in part)

    def action_back_to_list(self) -> None:
        self.dismiss()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return False if action == "open_deployment" else super().check_action(action, parameters)
