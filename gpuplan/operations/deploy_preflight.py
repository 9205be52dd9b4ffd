"""The last look before anything is brought to a host: members of one server must reach each other (`deploy-facts` section 5)."""

from gpuplan.domain.events import Phase
from gpuplan.domain.fact import Fact, Severity
from gpuplan.operations.check_reach import measure_reachability
from gpuplan.operations.deploy_prepare import Prepared
from gpuplan.operations.deploy_run import Halted, Run
from gpuplan.planning.preflight_measures import Reach, ReachOutcome, Wanted

CLOSED = frozenset(
    {ReachOutcome.REFUSED, ReachOutcome.TIMED_OUT, ReachOutcome.UNROUTABLE, ReachOutcome.STRANGER}
)
"""What was tried and failed; a host that could not try says nothing of the way."""


def require_ways(run: Run, prepared: Prepared) -> None:
    """Every member of a server over several hosts connects to every other. Raises Halted (GP825)."""
    together = [
        tuple(dict.fromkeys(one.host for one in run.spec.of_server(server.number)))
        for server in run.spec.servers
    ]
    together = [hosts for hosts in together if len(hosts) > 1]
    if not together:
        return
    run.tell.phase(Phase.PREFLIGHT, "the members to reach each other on their data addresses")
    inventory = prepared.wanted.inventory
    wanted = Wanted(
        image=run.spec.image,
        settings=inventory.vllm,
        entries={entry.name: entry for entry in inventory.hosts},
    )
    closed: list[Reach] = []
    for names in together:
        hosts = [host for host in run.opened.fleet.hosts if host.name in names]
        measured = measure_reachability(hosts, run.opened.connections, wanted, {})
        closed += [one for one in measured.tries if one.outcome in CLOSED]
    if closed:
        raise Halted(Phase.PREFLIGHT, *(_fact(one) for one in closed))


def _fact(one: Reach) -> Fact:
    return Fact(
        code="GP825",
        severity=Severity.ERROR,
        subject={"host": one.source, "other": one.target},
        figures={
            "source": one.source,
            "target": one.target,
            "address": one.address,
            "detail": one.detail or one.outcome.value.replace("_", " "),
        },
    )
