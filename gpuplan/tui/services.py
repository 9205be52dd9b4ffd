"""What the app asks for: the operations both faces share, behind one protocol, so that a recording can stand in for hosts.

Every method blocks and is called by `background.in_thread`, never from the event loop. Failures a person can mend are
raised as GpuplanError.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gpuplan.domain.deployment import DeploymentSpec, Member
from gpuplan.domain.events import At, Event
from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.plan import Eviction, Plan
from gpuplan.operations import deploy_process
from gpuplan.operations.fleet import narrow, parse_label
from gpuplan.operations.logs import LogChoice, Printed
from gpuplan.operations.plan import Asked, ServingOptions
from gpuplan.operations.status import StatusReport
from gpuplan.operations.stop import DRAIN_SECONDS, Intended, Stopped
from gpuplan.sources.catalogue.models import CatalogueModel


class SourceKind(StrEnum):
    LIVE = "live"
    SNAPSHOT = "snapshot"
    DECLARED = "declared"
    DEMO = "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the picture of the fleet comes from; it is always on the screen."""

    kind: SourceKind
    name: str
    """The inventory's or the snapshot's path, for people."""
    acts: bool
    """Whether containers can be started and stopped here (for the demo: pretended)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the plan screen asks: the same options the command line has."""

    reference: str = ""
    """MODEL; empty: none is chosen yet."""
    serving: ServingOptions = field(default_factory=ServingOptions)
    hosts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def asked(self) -> Asked:
        """What a plan repeats of it beside the workload."""
        return Asked(reference=self.reference, hosts=self.hosts, labels=self.labels)

    def narrowed(self, fleet: Fleet) -> Fleet:
        """The hosts it is about. Raises UsageError, NoHostError."""
        labels = tuple(parse_label(text) for text in self.labels)
        return narrow(fleet, hosts=self.hosts, labels=labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a deploy would do, for the person who is asked."""

    spec: DeploymentSpec
    replaces: tuple[Member, ...] = ()
    evicts: tuple[Eviction, ...] = ()
    """Deployments that are stopped to make room."""
    evicted: tuple[Member, ...] = ()
    """Their containers."""
    remarks: tuple[Fact, ...] = ()
    token: object = None
    """The service's own: handed back to `deploy`."""


RunOutcome = deploy_process.RunOutcome
"""How a deploy ended."""


class Run(Protocol):
    """A deploy under way, or one that has ended. It lives on when the app is left."""

    @property
    def id(self) -> str:
        """Unique and stable over restarts of the app."""
        ...

    @property
    def name(self) -> str:
        """Of the deployment."""
        ...

    @property
    def alive(self) -> bool: ...

    def events(self) -> Iterator[At]:
        """From the first one, as they come; ends with the run. Blocks."""
        ...

    def outcome(self) -> RunOutcome | None:
        """How it ended; None while it is alive."""
        ...

    def take_back(self) -> None:
        """Break it off: what was started is taken back, what was replaced runs again. A second call leaves things as they are."""
        ...

    def acknowledge(self) -> None:
        """A person has seen how it ended: it is not offered again. Of no effect before the end."""
        ...


class StatusLooks(Protocol):
    """What runs, looked at again and again; connections stay open between the looks."""

    def look(self, *, dial: bool = False) -> StatusReport:
        """What runs now, one look at a time. `dial`: hosts that did not answer are called again first."""
        ...

    def close(self) -> None:
        """No more looks; returns at once, from any thread."""
        ...


OnHost = Callable[[Host], None]
OnGpus = Callable[[Mapping[str, tuple[Gpu, ...]]], None]


class Services(Protocol):
    """The operations behind the app."""

    @property
    def source(self) -> Source: ...

    def expected(self) -> tuple[str, ...]:
        """Names of the hosts a reading will give, before it is made. Raises InventoryError, UsageError."""
        ...

    def read_fleet(self, on_host: OnHost, only: Sequence[str] = ()) -> Fleet:
        """The fleet as it is now, each host told as it is read; with `only` those are read anew, the rest is as it was."""
        ...

    def cancel_reading(self) -> None:
        """Break a reading off at once; `read_fleet` then raises BrokenOff in its thread or returns what it has."""
        ...

    def watch(self, every_seconds: float, stop: threading.Event, on_gpus: OnGpus) -> None:
        """Tell the GPUs' memory, utilisation and temperature of the hosts that answer until `stop` is set."""
        ...

    def models(self) -> tuple[CatalogueModel, ...]:
        """The catalogue; its order is that of the picker."""
        ...

    def plan(self, question: Question, fleet: Fleet) -> Plan:
        """Every strategy on a fleet that was read. A model, once read, is kept for the next question."""
        ...

    def propose(
        self, plan: Plan, choice: tuple[int, int], name: str | None, keep_alive_seconds: int | None
    ) -> Proposal:
        """What deploying a candidate (index of the strategy, of the candidate) would do on the hosts as they are now.

        Raises StoppedByFacts (NothingFits, NotReady, FleetChanged).
        """
        ...

    def dry_run(self, plan: Plan, choice: tuple[int, int], fleet: Fleet) -> DeploymentSpec:
        """The containers a candidate would be, no host asked: ports, paths and the image's contents are assumed.

        Raises FleetChanged where the fleet no longer has its GPUs, UsageError for what cannot be started.
        """
        ...

    def deploy(self, proposal: Proposal) -> Run:
        """Start it; confirmed before."""
        ...

    def runs(self) -> tuple[Run, ...]:
        """Deploys begun by this app or an earlier one that are under way or whose end nobody saw, latest first."""
        ...

    def deployments(self, name: str | None = None) -> StatusReport:
        """What runs."""
        ...

    def watch_deployments(self) -> StatusLooks:
        """To look at what runs again and again; nothing is asked before the first look."""
        ...

    def logs(
        self,
        name: str,
        choice: LogChoice,
        begin: Callable[[Sequence[Member]], Callable[[Printed], None]],
        talk: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        """Every line, until all members have ended or `stop` is set."""
        ...

    def stop(
        self,
        name: str,
        confirm: Callable[[Intended], bool],
        on_event: Callable[[Event], None],
        *,
        drain_seconds: int = DRAIN_SECONDS,
    ) -> Stopped:
        """End a deployment; `confirm` is asked before anything is touched."""
        ...

    def restart(
        self, name: str, on_event: Callable[[Event], None], *, drain_seconds: int = DRAIN_SECONDS
    ) -> None:
        """Stop its containers and start them again, in order. Raises StoppedByFacts."""
        ...
