"""What runs, looked at again and again over connections that stay open; a host that was lost is dialled again, rarely.

One look lists containers and asks servers. Nobody waits for a host that does not answer: it is dialled beside the looks.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpuplan.deploying.observed import Group
from gpuplan.domain.deployment import Prediction
from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import HostFailure
from gpuplan.domain.secret_text import masked
from gpuplan.errors import GpuplanError
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.causes import causes
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.probe import ProbeOptions
from gpuplan.operations.reached import ReachedFleet
from gpuplan.operations.status import CausesOf, StatusReport, reached, report_of
from gpuplan.remote.connection import ConnectionFailed

if TYPE_CHECKING:
    from gpuplan.remote.cancellation import Cancellation

AGAIN_SECONDS = 30.0
"""Between two calls to hosts that do not answer."""
CALL_SECONDS = 60.0
_NO_ANSWER = HostFailure(stage="connect", detail="it does not answer")


class KeptCauses:
    """Why deployments failed: logs are read once for each way their containers ended, not at every look."""

    def __init__(self, read: CausesOf = causes) -> None:
        self._read = read
        self._kept: dict[str, tuple[object, tuple[Fact, ...]]] = {}

    def __call__(self, fleet: ReachedFleet, group: Group, predicted: Prediction) -> tuple[Fact, ...]:
        ended = tuple(
            (one.id, one.state, one.member.started_at, one.member.finished_at) for one in group.current
        )
        known = self._kept.get(group.name)
        if known is not None and known[0] == ended:
            return known[1]
        found = self._read(fleet, group, predicted)
        self._kept[group.name] = ended, found
        return found


class StatusWatch:
    """A fleet that stays connected from the first look until `close`. One look at a time; `close` from any thread."""

    def __init__(
        self,
        options: FleetOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        connect: Callable[[FleetOptions], AbstractContextManager[ReachedFleet]] = reached,
    ) -> None:
        self._options = options
        self._connect = connect
        self._clock = clock
        self._causes = KeptCauses()
        self._looking = threading.Lock()
        self._open = ExitStack()
        self._fleet: ReachedFleet | None = None
        self._cancellation: Cancellation | None = None
        self._dialled = 0.0
        self._dialler: threading.Thread | None = None
        self._closed = False

    def look(self, *, dial: bool = False) -> StatusReport:
        """What runs now. `dial`: hosts that did not answer are called at once, and waited for.

        Raises InventoryError, UsageError; GpuplanError when it was closed meanwhile.
        """
        with self._looking:
            if self._closed:
                raise GpuplanError("the watch has ended")
            if self._fleet is None:
                self._fleet = self._open.enter_context(
                    self._connect(replace(self._options, reach=self._reach))
                )
                self._dialled = self._clock()
            fleet = self._fleet
            if dial:
                _call_again(fleet, tuple(fleet.silent))
                self._dialled = self._clock()
            report = report_of(fleet, actual=False, causes_of=self._causes)
            if report.silent and self._clock() - self._dialled > AGAIN_SECONDS and not self._is_dialling():
                self._dialled = self._clock()
                names = tuple(host.name for host in report.silent)
                for host in report.silent:
                    fleet.silent.setdefault(host.name, host.failure or _NO_ANSWER)
                self._dialler = threading.Thread(target=_call_again, args=(fleet, names), daemon=True)
                self._dialler.start()
            return report

    def _is_dialling(self) -> bool:
        return self._dialler is not None and self._dialler.is_alive()

    def close(self) -> None:
        """End every connection at once; a look under way fails or returns what it has."""
        self._closed = True
        if self._cancellation is not None:
            self._cancellation.cancel()
        threading.Thread(target=self._shut, daemon=True).start()

    def _shut(self) -> None:
        with self._looking:
            self._open.close()

    def _reach(self) -> ProbeOptions:
        assert self._options.reach is not None
        options = self._options.reach()
        self._cancellation = options.ssh.cancellation
        if self._closed:
            self._cancellation.cancel()
        return options


def _call_again(fleet: ReachedFleet, names: Sequence[str]) -> None:
    """Call hosts that do not answer, all at once; one that stays away is silent, with what it failed at now."""
    outcomes = on_each({name: partial(_call, fleet, name) for name in names}, CALL_SECONDS)
    for name, outcome in outcomes.items():
        if isinstance(outcome, Outcome):
            fleet.silent.setdefault(name, HostFailure(stage="connect", detail=outcome.why))


def _call(fleet: ReachedFleet, name: str) -> None:
    try:
        fleet.reach(name)
    except ConnectionFailed as failed:
        fleet.silent[name] = HostFailure(stage=failed.stage.value, detail=masked(failed.detail))
    else:
        fleet.silent.pop(name, None)
