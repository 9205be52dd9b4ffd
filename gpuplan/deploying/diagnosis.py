"""What is known of a failure: the evidence of every member, the cause found in it, and what a second try would change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuplan.deploying.signature import CODES, Weight
from gpuplan.domain.deployment import ContainerRole
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.secret_text import masked
from gpuplan.engine.startup_log import LogLine

NEVER_STARTED = float("-inf")
"""When a container failed that could not be started: before every line of the others."""

LONGEST = 300
"""Characters of a quoted line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberEvidence:
    """One container of a deployment that failed, as it was when its log was saved."""

    host: str
    container: str
    role: ContainerRole = ContainerRole.SINGLE
    rank: int = 0
    server: int = 0
    state: str = "running"
    """As Docker prints it (`created`, `running`, `exited`, …)."""
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    """Docker's `State.Error`, or what it answered: why it could not be created or started."""
    finished_at: float | None = None
    """By the host's clock, seconds since 1970."""
    lines: tuple[LogLine, ...] = ()
    """Its log in order; the times are by the host's clock."""
    clock_offset_seconds: float = 0.0
    """How far the host's clock is ahead of ours."""

    @property
    def ended(self) -> bool:
        """It is no longer running, or never was; of a host that is silent nobody knows."""
        return self.state not in ("running", "restarting", "paused", "unknown", "missing")

    def ours(self, at: float | None) -> float | None:
        """A time of this host by our clock."""
        return None if at is None else at - self.clock_offset_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that went wrong in one member."""

    group: str
    """Class of the failure: `MEM_KV_SMALL`."""
    weight: Weight
    host: str
    container: str
    role: ContainerRole
    rank: int = 0
    server: int = 0
    at: float | None = None
    """By our clock; `NEVER_STARTED` before any line, None where it is unknown."""
    line: str = ""
    """The log's own words, masked and printable; empty where only the exit code speaks."""
    figures: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def code(self) -> str:
        """What `gpuplan explain` knows it by."""
        return CODES[self.group]

    def fact(self, severity: Severity) -> Fact:
        """The cause as a fact that `present` words."""
        return Fact(
            code=self.code,
            severity=severity,
            subject={
                "host": self.host,
                "container": self.container,
                "role": self.role.value,
                "rank": self.rank,
                "server": self.server,
            },
            figures={"class": self.group, **({"line": self.line} if self.line else {}), **self.figures},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """A matter of fit: plan again with these engine arguments (or, for `executor`, option of ours) changed."""

    change: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOtherPort:
    """The same plan, but this port (None: all of its ports) allotted anew."""

    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFlag:
    """The same plan without flags that this release of the engine does not know."""

    flags: tuple[str, ...]


Remedy = Replan | RetryOtherPort | RemoveFlag


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a deployment failed. Without a root nothing was found wrong."""

    root: Cause | None = None
    remedy: Remedy | None = None
    consequences: tuple[Cause, ...] = ()
    """What followed from it, in order of time."""
    remarks: tuple[Cause, ...] = ()
    """Worth telling beside it."""

    @property
    def change(self) -> Mapping[str, Any] | None:
        """The remedy as plan options, where it is a matter of fit."""
        return self.remedy.change if isinstance(self.remedy, Replan) else None

    def facts(self) -> tuple[Fact, ...]:
        """The root first (error), then what followed (information) and what is worth telling (warning)."""
        return (
            *([self.root.fact(Severity.ERROR)] if self.root is not None else []),
            *(cause.fact(Severity.INFO) for cause in self.consequences),
            *(cause.fact(Severity.WARNING) for cause in self.remarks),
        )


def shown(text: str, longest: int = LONGEST) -> str:
    """Words of a log on one line: secrets masked, nothing a terminal would act on, cut at `longest`."""
    text = masked(text[: 8 * LONGEST])
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
