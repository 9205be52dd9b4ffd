"""How long a deployment has been idle, as far as one machine that looks now and then can know, and what a sweep makes of it."""

from dataclasses import dataclass, field
from enum import StrEnum

from gpuplan.domain.deployment import Load

Counters = tuple[tuple[int, int, int], ...]
"""Server, requests served, tokens read and written (-1: not told); of every server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time by this machine's clocks."""

    wall: float
    """Seconds since 1970; may be set by hand or by NTP."""
    steady: float = 0.0
    """Seconds since this machine booted, sleep included; nobody sets it."""
    boot: str = ""
    """Which boot that was; empty: not known, then `steady` means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What was seen of one deployment, and since when it has not changed."""

    name: str
    generation: str
    starts: tuple[str, ...]
    """Id and start of every container: one that was started again counts anew."""
    counters: Counters
    since: Moment
    """When this machine first saw it idle with these counters: never before it was idle."""
    looked: float
    """Of the last look, seconds since 1970."""

    @property
    def key(self) -> tuple[str, str]:
        """Deployments of two fleets may share a name, but no generation."""
        return self.name, self.generation


class Outcome(StrEnum):
    """What a sweep made of a deployment."""

    KEPT = "kept"
    WOULD_BE_STOPPED = "would_be_stopped"
    STOPPED = "stopped"
    LEFT = "left"
    """It was to be stopped, and something of it is left."""
    UNKNOWN = "unknown"
    """Nobody can say whether it is idle: left alone."""


class Why(StrEnum):
    """The reason for it."""

    IDLE = "idle"
    """Longer than its keep-alive."""
    NOT_YET = "not_yet"
    FIRST_SEEN = "first_seen"
    """It begins to count now: never seen before, or it did something since the last look."""
    IN_FLIGHT = "in_flight"
    NO_KEEP_ALIVE = "no_keep_alive"
    NEVER = "never"
    """Its keep-alive is negative."""
    NOT_RUNNING = "not_running"
    """It starts, has ended, or failed: that is no idleness."""
    LOCKED = "locked"
    """Another run works on its hosts."""
    CHANGED = "changed"
    """It was stopped or deployed anew by somebody else meanwhile."""
    NOT_CONFIRMED = "not_confirmed"
    FAILED = "failed"
    """Its stop did not begin: a host could not be locked."""
    SILENT = "silent"
    """A host or server of it does not answer, or was not asked."""
    NO_FIGURES = "no_figures"
    """A server answers without the figures that tell it is idle."""
    UNHEALTHY = "unhealthy"
    OTHERS_RUN = "others_run"
    """Containers of another deploy of the same name run, and nobody knows how busy they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One deployment in a sweep."""

    name: str
    outcome: Outcome
    why: Why
    detail: str = ""
    """Which host, which state, whose words: completes the reason."""
    keep_alive_seconds: int | None = None
    """That counts: the label's, or what the sweep was told instead."""
    idle_seconds: int | None = None
    """At least so long; None: it was not measured."""
    load: Load = field(default_factory=Load)

    @property
    def remaining_seconds(self) -> int | None:
        """Until a sweep may stop it, if nothing comes; None where that cannot be told."""
        if self.idle_seconds is None or self.keep_alive_seconds is None or self.keep_alive_seconds < 0:
            return None
        return max(0, self.keep_alive_seconds - self.idle_seconds)
