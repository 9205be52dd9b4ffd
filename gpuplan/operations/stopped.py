"""Ends of a deploy that are told by facts: `present` has the words, whoever shows them joins the two."""

from collections.abc import Sequence

from gpuplan.domain.deployment import Deployment
from gpuplan.domain.fact import Fact
from gpuplan.domain.plan import Plan
from gpuplan.errors import ExitCode, GpuplanError


class StoppedByFacts(GpuplanError):
    """Nothing was started, or nothing is left of it; `facts` say why, the root cause first."""

    about = ""
    """Begins the sentence."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        super().__init__(", ".join(fact.code for fact in facts) or "no reason was found")
        self.facts = tuple(facts)


class NothingFits(GpuplanError):
    """No strategy fits; the plan says why."""

    exit_code = ExitCode.NO_FIT

    def __init__(
        self,
        plan: Plan,
        message: str = "nothing fits, so nothing was started",
        hint: str = "the plan above says why, and what would make it fit",
    ) -> None:
        super().__init__(message, hint=hint)
        self.plan = plan


class NeverFits(NothingFits):
    """Not even with nothing else running: it is not waited for."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(
            plan,
            "it would not fit with nothing else running, so it is not waited for; nothing was started",
            "the plan above is for the empty fleet and says what would make it fit",
        )


class UnaskedEviction(NothingFits):
    """It fits once others are stopped, which nobody asked for."""

    def __init__(self, plan: Plan, deployments: Sequence[str]) -> None:
        names = ", ".join(deployments)
        super().__init__(
            plan,
            f"nothing fits beside what runs, so nothing was started; stopping {names} would make room",
            "--strategy evict does that, after asking",
        )


class NotReady(StoppedByFacts):
    """A chosen host cannot start the containers as it is; nothing was touched."""

    exit_code = ExitCode.DEPLOYMENT_FAILED
    about = "nothing was started"


class FleetChanged(StoppedByFacts):
    """The fleet is not what the plan was made for; nothing was touched."""

    exit_code = ExitCode.FLEET_CHANGED
    about = "the fleet changed since the plan"


class StillNoRoom(StoppedByFacts):
    """Room was waited for, and the time is over; nothing was touched."""

    exit_code = ExitCode.NO_FIT
    about = "nothing was started"

    def __init__(self, facts: Sequence[Fact], plan: Plan | None) -> None:
        super().__init__(facts)
        self.plan = plan
        """As it was at the last look; None where it could not be made."""


class DeploymentFailed(StoppedByFacts):
    """The deployment did not come up; what it had started was taken back."""

    exit_code = ExitCode.DEPLOYMENT_FAILED

    def __init__(self, facts: Sequence[Fact], deployment: Deployment, logs: Sequence[str] = ()) -> None:
        super().__init__(facts)
        self.deployment = deployment
        """As it was left."""
        self.logs = tuple(logs)
        self.about = f"{deployment.name} was not deployed"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or a lost terminal; what had been started was taken back, but for what `left` names."""

    def __init__(self, deployment: Deployment, left: Sequence[str] = ()) -> None:
        super().__init__()
        self.deployment = deployment
        """As it was left."""
        self.left = tuple(left)
        """`CONTAINER on HOST`: what was not taken back."""
