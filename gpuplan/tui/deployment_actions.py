"""What can be done with a deployment, from the list and from its own screen: logs, stop, restart, copy."""

from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.screen import Screen

from gpuplan.operations.status import DeploymentSeen
from gpuplan.present.document import visible
from gpuplan.present.outcome_text import question_command
from gpuplan.tui import commands
from gpuplan.tui.widgets.document import Document
from gpuplan.tui.widgets.rows import Rows

if TYPE_CHECKING:
    from gpuplan.tui.app import GpuplanApp

NEEDS_A_DEPLOYMENT = frozenset(
    {"deployment_logs", "stop_deployment", "restart_deployment", "copy_endpoint", "copy_request"}
)
NEEDS_AN_ADDRESS = frozenset({"copy_endpoint", "copy_request"})
CHANGES_HOSTS = frozenset({"stop_deployment", "restart_deployment"})
_LETTERS = frozenset({"h", "l"})


def _without_letters() -> list[BindingType]:
    """The keys of rows but those that mean something else here."""
    kept: list[BindingType] = []
    for binding in Rows.BINDINGS:
        if isinstance(binding, Binding):
            keys = [key for key in binding.key.split(",") if key not in _LETTERS]
            kept.append(Binding(",".join(keys), binding.action, binding.description, show=False))
    return kept


class DeploymentList(Rows, inherit_bindings=False):
    """Rows whose letters are free for the screen's commands."""

    BINDINGS: ClassVar[list[BindingType]] = _without_letters()


class DeploymentDocument(Document, inherit_bindings=False):
    """A document whose letters are free for the screen's commands."""

    BINDINGS: ClassVar[list[BindingType]] = _without_letters()


class DeploymentActions(Screen[None]):
    """A screen on which one deployment is meant."""

    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.DEPLOYMENTS)]

    @property
    def gpuplan(self) -> "GpuplanApp":
        return cast("GpuplanApp", self.app)

    def meant(self) -> DeploymentSeen | None:
        """The deployment that is meant; None: there is none."""
        raise NotImplementedError

    def look(self, *, dial: bool = False) -> None:
        """See what runs now."""
        raise NotImplementedError

    # ------------------------------------------------------------------ what can be done now

    def why_not(self, action: str) -> str | None:
        """Why an action cannot be done now; None: it can, or has no reason."""
        if action not in NEEDS_A_DEPLOYMENT:
            return None
        if action in CHANGES_HOSTS and self.gpuplan.why_not_change is not None:
            return self.gpuplan.why_not_change
        seen = self.meant()
        if seen is None:
            return "no deployment is chosen"
        if action in NEEDS_AN_ADDRESS and seen.deployment.endpoint is None:
            return f"{visible(seen.deployment.name)} has no address"
        return None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return None if self.why_not(action) is not None else super().check_action(action, parameters)

    def _able(self, action: str) -> DeploymentSeen | None:
        """The deployment, where the action can be done; else it is said why not."""
        why = self.why_not(action)
        if why is not None:
            self.notify(why, severity="warning", markup=False)
            return None
        return self.meant()

    # ------------------------------------------------------------------ doing it

    def action_look(self) -> None:
        self.look(dial=True)

    def action_deployment_logs(self) -> None:
        seen = self._able("deployment_logs")
        if seen is not None:
            self.gpuplan.open_logs(seen.deployment.name)

    def action_stop_deployment(self) -> None:
        seen = self._able("stop_deployment")
        if seen is not None:
            from gpuplan.tui.screens.stop import StopScreen

            self.app.push_screen(StopScreen(seen.deployment), self._changed)

    def action_restart_deployment(self) -> None:
        seen = self._able("restart_deployment")
        if seen is not None:
            from gpuplan.tui.screens.stop import RestartScreen

            self.app.push_screen(RestartScreen(seen.deployment), self._changed)

    def _changed(self, _result: None) -> None:
        self.look()

    def action_copy_endpoint(self) -> None:
        seen = self._able("copy_endpoint")
        if seen is not None:
            self._copy("\n".join(visible(one) for one in seen.deployment.endpoints))

    def action_copy_request(self) -> None:
        seen = self._able("copy_request")
        if seen is not None:
            self._copy(question_command(seen.deployment) or "")

    def _copy(self, text: str) -> None:
        """Copied, and shown: not every terminal lets an app write to the clipboard."""
        self.app.copy_to_clipboard(text)
        self.notify(text, title="Copied", markup=False)
