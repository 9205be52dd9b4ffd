"""A Ray cluster is complete when the addresses that registered are the planned ones, with all their GPUs."""

import json
import time
from functools import partial

from gpuplan.deploying.observed import container_of
from gpuplan.deploying.ray_nodes import PROGRAM, SECONDS, RayNode, missing, parse
from gpuplan.domain import labels
from gpuplan.domain.deployment import GONE, ContainerRole, ContainerSpec, Server
from gpuplan.domain.events import Phase
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.deploy_run import Halted, Run, halted, host_lost

QUERY_SECONDS = SECONDS + 5.0


def await_nodes(run: Run, server: Server) -> None:
    """Returns when every planned node is alive with its GPUs. Raises Halted: a member ended, or time is over."""
    head = next(one for one in run.spec.of_server(server.number) if one.role is ContainerRole.RAY_HEAD)
    deadline = time.monotonic() + run.patience.register
    seen: tuple[RayNode, ...] = ()
    said = ""
    silent = Silence(run)
    while True:
        outcome = on_each({head.host: partial(_query, run, head, server)}, QUERY_SECONDS)[head.host]
        if isinstance(outcome, Outcome):
            said = outcome.why
        else:
            nodes, said = outcome
            seen = seen if nodes is None else nodes
        lacking = missing(seen, server.ray_addresses)
        if not lacking:
            return
        _stop_at_the_dead(run, server, silent)
        if time.monotonic() > deadline:
            raise halted(
                Phase.REGISTER,
                "GP819",
                {"hosts": tuple(host for host, *_ in lacking)},
                missing=tuple(f"{address} ({found} of {gpus} GPUs)" for _, address, gpus, found in lacking),
                seen=tuple(sorted({node.address for node in seen if node.alive})),
                wanted=len(server.ray_addresses),
                seconds=run.patience.register,
                said=said,
            )
        time.sleep(run.patience.poll)


def _query(run: Run, head: ContainerSpec, server: Server) -> tuple[tuple[RayNode, ...] | None, str]:
    """The nodes as the head knows them, None where it gave no answer; and what it said instead."""
    from gpuplan.remote import containers as remote

    first = json.loads(dict(head.labels)[labels.PORTS])["ray"][0]
    address = f"{server.ray_addresses[0][1]}:{first}"
    answered = remote.execute(
        run.opened.engine_of(head.host),
        run.made[head.host, head.name],
        ["python3", "-c", PROGRAM, address],
        timeout=QUERY_SECONDS,
    )
    nodes = parse(answered.stdout.decode(errors="replace"))
    last = answered.stderr.decode(errors="replace").strip().splitlines()[-1:]
    return nodes, "" if nodes is not None or not last else run.secrets.masked(last[0])


class Silence:
    """Hosts that do not answer, each since when."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._since: dict[str, float] = {}

    def heard(self, host: str, outcome: object) -> None:
        """What a host said or did not. Raises Halted when it has been silent for too long (GP813)."""
        if not (isinstance(outcome, Outcome) and outcome.lost):
            self._since.pop(host, None)
            return
        silent = time.monotonic() - self._since.setdefault(host, time.monotonic())
        if silent > self._run.patience.host_lost:
            raise host_lost(Phase.REGISTER, host, outcome.why, round(silent))


def _stop_at_the_dead(run: Run, server: Server, silent: Silence) -> None:
    """A node that ended, or whose host is gone, will not register."""
    from gpuplan.remote import containers as remote

    def state(host: str, name: str) -> str:
        document = remote.inspect(run.opened.engine_of(host), run.made[host, name])
        return container_of(host, document).state if document is not None else "missing"

    started = [one for one in run.spec.of_server(server.number) if one.role is not ContainerRole.LEADER]
    states = on_each({one.host: partial(state, one.host, one.name) for one in started}, 20.0)
    if any(found in GONE for found in states.values() if not isinstance(found, Outcome)):
        raise Halted(Phase.REGISTER)
    for host, found in states.items():
        silent.heard(host, found)
