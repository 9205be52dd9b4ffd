"""The operations on real hosts (or on a snapshot, or on declared hardware) behind the app."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuplan.domain.deployment import DeploymentSpec, Member
from gpuplan.domain.events import Event
from gpuplan.domain.fleet import Fleet, Host, HostStatus
from gpuplan.domain.plan import Plan
from gpuplan.engine.argument_tokens import flatten
from gpuplan.errors import UsageError
from gpuplan.operations.catalogues import find_models
from gpuplan.operations.dry_run import dry_run
from gpuplan.operations.fleet import (
    THIS_MACHINE,
    FleetOptions,
    load_inventory,
    meant_hosts,
    see_fleet,
)
from gpuplan.operations.logs import LogChoice, Printed, read_logs
from gpuplan.operations.monitor import watch_gpus
from gpuplan.operations.probe import ProbeOptions, Progress, probe_fleet
from gpuplan.operations.question import Planner
from gpuplan.operations.restart import RestartChoice, restart
from gpuplan.operations.status import StatusReport, read_status
from gpuplan.operations.status_watch import StatusWatch
from gpuplan.operations.stop import DRAIN_SECONDS, Intended, StopChoice, Stopped, stop
from gpuplan.sources.catalogue.models import CatalogueModel
from gpuplan.tui.live_deploy import begin, proposal_of, runs, secret_args
from gpuplan.tui.services import OnGpus, OnHost, Proposal, Question, Run, Source, SourceKind, StatusLooks


class LiveServices:
    """Services over the options of a command line."""

    def __init__(self, options: FleetOptions, reach: Callable[[], ProbeOptions]) -> None:
        self._reach = reach
        self._options = replace(options, reach=None if _offline(options) else reach, watch=None)
        self._planner = Planner()
        self._inventory_image: tuple[str | None] | None = None
        """Of the inventory as it was read; None: not read yet."""
        self._reading: ProbeOptions | None = None
        self._hosts: dict[str, Host] = {}
        """As they were read last, by name."""
        self._words: dict[tuple[str, ...], tuple[str, ...]] = {}
        """The engine's arguments as they were written, by those a plan repeats: it masks secrets."""

    @property
    def source(self) -> Source:
        options = self._options
        if options.snapshot is not None:
            return Source(kind=SourceKind.SNAPSHOT, name=str(options.snapshot), acts=False)
        inventory = load_inventory(options)
        name = inventory.path if inventory is not None else "this machine"
        kind = SourceKind.DECLARED if options.no_probe else SourceKind.LIVE
        return Source(kind=kind, name=name, acts=not options.no_probe)

    def expected(self) -> tuple[str, ...]:
        options = self._options
        if not options.probes:
            return tuple(host.name for host in see_fleet(options).hosts)
        inventory = load_inventory(options) or THIS_MACHINE
        meant = meant_hosts(inventory, options)
        return tuple(entry.name for entry in inventory.hosts if entry.name in meant)

    def read_fleet(self, on_host: OnHost, only: Sequence[str] = ()) -> Fleet:
        options = self._options
        if not options.probes:
            return see_fleet(options)
        inventory = load_inventory(options) or THIS_MACHINE
        meant = meant_hosts(inventory, options)
        wanted = frozenset(only) & meant if only else meant
        self._reading = reading = self._reach()

        def told(progress: Progress) -> None:
            if not reading.ssh.cancellation.cancelled:
                self._hosts[progress.last.name] = progress.last
                on_host(progress.last)

        read = probe_fleet(inventory, reading, told, only=wanted)
        if reading.ssh.cancellation.cancelled:
            return read
        self._hosts |= {host.name: host for host in read.hosts}
        names = [entry.name for entry in inventory.hosts if entry.name in meant]
        return replace(read, hosts=tuple(self._hosts[name] for name in names if name in self._hosts))

    def cancel_reading(self) -> None:
        if self._reading is not None:
            self._reading.ssh.cancellation.cancel()

    def watch(self, every_seconds: float, stop: threading.Event, on_gpus: OnGpus) -> None:
        options = self._options
        if not options.probes:
            return
        inventory = load_inventory(options) or THIS_MACHINE
        answered = {name for name, host in list(self._hosts.items()) if host.status is HostStatus.OK}
        watch_gpus(inventory, self._reach(), answered, every_seconds, stop, on_gpus)

    def models(self) -> tuple[CatalogueModel, ...]:
        return find_models(())

    def plan(self, question: Question, fleet: Fleet) -> Plan:
        plan = self._planner.plan(
            question.narrowed(fleet), question.serving, question.asked, image=self._configured_image(fleet)
        )
        self._words[_masked_args(plan)] = question.serving.engine_args
        return plan

    def _configured_image(self, fleet: Fleet) -> str | None:
        """The image that decides the vLLM version when no option does, as the command line finds it."""
        options = self._options
        if options.probes or (options.snapshot is not None and options.inventory is None):
            return fleet.image
        if self._inventory_image is None:
            inventory = load_inventory(options)
            self._inventory_image = (inventory.vllm.image if inventory is not None else fleet.image,)
        return self._inventory_image[0]

    def propose(
        self, plan: Plan, choice: tuple[int, int], name: str | None, keep_alive_seconds: int | None
    ) -> Proposal:
        self._require_hosts("deploy")
        secrets = secret_args(flatten(self._words.get(_masked_args(plan), ())))
        options = replace(self._options, reach=self._reach_to_prepare)
        return proposal_of(options, plan, choice, name, keep_alive_seconds, secrets)

    def _reach_to_prepare(self) -> ProbeOptions:
        """As every reading: `cancel_reading` breaks it off."""
        self._reading = reading = self._reach()
        return reading

    def dry_run(self, plan: Plan, choice: tuple[int, int], fleet: Fleet) -> DeploymentSpec:
        written = self._words.get(_masked_args(plan))
        words = None if written is None else flatten(written)
        return dry_run(self._options, plan, choice, fleet, self._planner.model, words)

    def deploy(self, proposal: Proposal) -> Run:
        return begin(self._options, self._reach, proposal)

    def runs(self) -> tuple[Run, ...]:
        return runs(self._options)

    def deployments(self, name: str | None = None) -> StatusReport:
        self._require_hosts("what runs")
        return read_status(self._options, name)

    def watch_deployments(self) -> StatusLooks:
        return StatusWatch(self._options) if self._options.reach is not None else _Looks(self.deployments)

    def logs(
        self,
        name: str,
        choice: LogChoice,
        begin: Callable[[Sequence[Member]], Callable[[Printed], None]],
        talk: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self._require_hosts("logs")
        read_logs(self._options, name, choice, begin, talk, stop)

    def stop(
        self,
        name: str,
        confirm: Callable[[Intended], bool],
        on_event: Callable[[Event], None],
        *,
        drain_seconds: int = DRAIN_SECONDS,
    ) -> Stopped:
        self._require_hosts("stop")
        choice = StopChoice(drain_seconds=drain_seconds, wait_seconds=0)
        return stop(self._options, name, choice, confirm, on_event)

    def restart(
        self, name: str, on_event: Callable[[Event], None], *, drain_seconds: int = DRAIN_SECONDS
    ) -> None:
        self._require_hosts("restart")
        restart(self._options, name, RestartChoice(drain=drain_seconds), on_event)

    def _require_hosts(self, what: str) -> None:
        if self._options.reach is None:
            raise UsageError(
                f"{what}: the hosts are not reached, the fleet is {self.source.kind.value}",
                hint="open the app with the inventory alone: gpuplan tui -i FILE",
            )


def _masked_args(plan: Plan) -> tuple[str, ...]:
    return tuple(plan.request.get("engine_args", ()))


class _Looks:
    """Looks that keep nothing open."""

    def __init__(self, read: Callable[[], StatusReport]) -> None:
        self._read = read

    def look(self, *, dial: bool = False) -> StatusReport:
        return self._read()

    def close(self) -> None:
        pass


def _offline(options: FleetOptions) -> bool:
    return options.snapshot is not None or options.no_probe
