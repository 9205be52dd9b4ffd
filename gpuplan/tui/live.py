"""The operations on real hosts (or on a snapshot, or on declared hardware) behind the app."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuplan.domain.deployment import Member
from gpuplan.domain.events import Event
from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.plan import Plan
from gpuplan.errors import UsageError
from gpuplan.operations.catalogues import find_models
from gpuplan.operations.fleet import (
    THIS_MACHINE,
    FleetOptions,
    load_inventory,
    meant_hosts,
    narrow,
    parse_label,
    see_fleet,
)
from gpuplan.operations.logs import LogChoice, Printed, read_logs
from gpuplan.operations.plan import Asked, engine_version, model_for, plan_model, workload_of
from gpuplan.operations.probe import ProbeOptions, Progress, probe_fleet
from gpuplan.operations.status import StatusReport, read_status
from gpuplan.operations.stop import DRAIN_SECONDS, Intended, StopChoice, Stopped, stop
from gpuplan.sources.catalogue.models import CatalogueModel
from gpuplan.tui.services import OnGpus, OnHost, Proposal, Question, Run, Source, SourceKind


class LiveServices:
    """Services over the options of a command line."""

    def __init__(self, options: FleetOptions, reach: Callable[[], ProbeOptions]) -> None:
        self._reach = reach
        self._options = replace(options, reach=None if _offline(options) else reach, watch=None)
        self._reading: ProbeOptions | None = None
        self._fleet: Fleet | None = None

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
            self._fleet = see_fleet(options)
            return self._fleet
        inventory = load_inventory(options) or THIS_MACHINE
        meant = meant_hosts(inventory, options)
        wanted = frozenset(only) & meant if only else meant
        self._reading = reading = self._reach()

        def told(progress: Progress) -> None:
            on_host(progress.last)

        read = probe_fleet(inventory, reading, told, only=wanted)
        if only and self._fleet is not None:
            read = _renewed(self._fleet, read)
        self._fleet = read
        return read

    def cancel_reading(self) -> None:
        if self._reading is not None:
            self._reading.ssh.cancellation.cancel()

    def watch(self, every_seconds: float, stop: threading.Event, on_gpus: OnGpus) -> None:
        raise NotImplementedError

    def models(self) -> tuple[CatalogueModel, ...]:
        return find_models(())

    def plan(self, question: Question, fleet: Fleet) -> Plan:
        labels = tuple(parse_label(text) for text in question.labels)
        fleet = narrow(fleet, hosts=question.hosts, labels=labels)
        inventory = load_inventory(self._options)
        version = engine_version(
            question.serving, inventory.vllm.image if inventory is not None else fleet.image
        )
        workload = workload_of(question.serving, version)
        model = model_for(question.reference, workload)
        asked = Asked(reference=question.reference, hosts=question.hosts, labels=question.labels)
        return plan_model(model, fleet, workload, version, asked)

    def propose(
        self, plan: Plan, choice: tuple[int, int], name: str | None, keep_alive_seconds: int | None
    ) -> Proposal:
        raise NotImplementedError

    def deploy(self, proposal: Proposal) -> Run:
        raise NotImplementedError

    def runs(self) -> tuple[Run, ...]:
        return ()

    def deployments(self, name: str | None = None) -> StatusReport:
        self._require_hosts("what runs")
        return read_status(self._options, name)

    def logs(
        self,
        name: str,
        choice: LogChoice,
        begin: Callable[[Sequence[Member]], Callable[[Printed], None]],
        talk: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self._require_hosts("logs")
        read_logs(self._options, name, choice, begin, talk)

    def stop(
        self, name: str, confirm: Callable[[Intended], bool], on_event: Callable[[Event], None]
    ) -> Stopped:
        self._require_hosts("stop")
        return stop(
            self._options, name, StopChoice(drain_seconds=DRAIN_SECONDS, wait_seconds=0), confirm, on_event
        )

    def restart(self, name: str, on_event: Callable[[Event], None]) -> None:
        raise NotImplementedError

    def _require_hosts(self, what: str) -> None:
        if self._options.reach is None:
            raise UsageError(
                f"{what}: the hosts are not reached, the fleet is {self.source.kind.value}",
                hint="open the app with the inventory alone: gpuplan tui -i FILE",
            )


def _offline(options: FleetOptions) -> bool:
    return options.snapshot is not None or options.no_probe


def _renewed(before: Fleet, read: Fleet) -> Fleet:
    """The fleet with those hosts that were read again."""
    again: dict[str, Host] = {host.name: host for host in read.hosts}
    return replace(read, hosts=tuple(again.get(host.name, host) for host in before.hosts))
