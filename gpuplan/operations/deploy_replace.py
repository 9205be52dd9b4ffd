"""What runs under the name already: left alone when it is what is asked, else stopped, set aside, and its memory awaited.

GPUs hold one model at a time, so the old one stops before the new one starts; it is kept until the new one serves.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from gpuplan.domain import labels
from gpuplan.domain.events import Phase, Remark, Undone
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Host
from gpuplan.operations.across import Outcome
from gpuplan.operations.deploy_run import Run, SetAside, host_lost
from gpuplan.operations.deploy_undo import everywhere, remove_found
from gpuplan.operations.deployed import OLD, Existing, Found, Generation

STOP_SECONDS = 60
ENOUGH = 0.8
"""Share of what was claimed that must be free again (S4.7)."""


def same_running(existing: Existing, spec_hash: str) -> Generation | None:
    """The generation that is what is asked for and runs, serving or about to."""
    return next((one for one in existing.generations if one.spec_hash == spec_hash and one.running), None)


def set_aside(run: Run, existing: Existing) -> None:
    """Stop and rename the last good generation, remove what interrupted deploys left. Raises Halted."""
    if not existing.generations:
        return
    kept = next((one for one in existing.generations if one.complete), None)
    rest = tuple(found for one in existing.generations if one is not kept for found in one.containers)
    names = f"{run.spec.name} as it was" if kept is not None else f"what is left of {run.spec.name}"
    run.tell.phase(Phase.REPLACE, f"{names} to stop and give its memory back", STOP_SECONDS + 30.0)
    if rest:
        _removed(run, rest)
    if kept is None:
        return
    outcomes = everywhere(run, {found.host for found in kept.containers}, partial(_stop, run, kept))
    for host, outcome in outcomes.items():
        if isinstance(outcome, Outcome):
            raise host_lost(Phase.REPLACE, host, outcome.why)
    await_memory(run, kept)


def _removed(run: Run, rest: tuple[Found, ...]) -> None:
    outcomes = remove_found(run, rest)
    for host, outcome in outcomes.items():
        if isinstance(outcome, Outcome):
            raise host_lost(Phase.REPLACE, host, outcome.why)
    for found in rest:
        why = "an interrupted deploy had left it"
        run.tell(Undone(host=found.host, container=found.name, what="removed", why=why))


def _stop(run: Run, kept: Generation, host: str) -> set[str]:
    """Stop the containers of a host, leaders first; then rename them, so that the new ones can have their names."""
    from gpuplan.remote import containers as remote

    engine = run.opened.engine_of(host)
    mine = sorted((one for one in kept.containers if one.host == host), key=lambda one: one.place[2:])
    already = {one.found.id for one in run.aside}
    for found in mine:
        ran = found.state == "running"
        base = found.name.partition(OLD)[0]
        if found.id not in already:
            name = f"{base}{OLD}{kept.id[:8] or found.id[:8]}"
            run.aside.append(
                SetAside(found=_renamed(found, name), name_before=base, ran=ran or found.name != base)
            )
        if ran:
            remote.stop(engine, found.id, STOP_SECONDS)
    for one in run.aside:
        if one.found.host == host and one.found.id not in already:
            remote.rename(engine, one.found.id, one.found.name)
    return {found.name for found in mine}


def _renamed(found: Found, name: str) -> Found:
    return replace(found, name=name)


def await_memory(run: Run, stopped: Generation) -> None:
    """Wait until the devices report what the stopped containers had claimed as free again (S4.7), and tell if not."""
    claims: dict[str, dict[str, int]] = {}
    for found in stopped.containers:
        try:
            listed = json.loads(found.labels.get(labels.CLAIMS, "{}"))
        except ValueError:
            continue
        if isinstance(listed, dict):
            claims.setdefault(found.host, {}).update(
                {str(uuid): size for uuid, size in listed.items() if isinstance(size, int)}
            )
    wanted = {host: sizes for host, sizes in claims.items() if sizes}
    deadline = time.monotonic() + run.patience.memory_back
    while wanted:
        fleet = run.opened.read_again(wanted)
        wanted = {host.name: wanted[host.name] for host in fleet.hosts if _short(host, wanted.get(host.name))}
        if not wanted:
            return
        if time.monotonic() > deadline:
            fact = Fact(
                code="GP827",
                severity=Severity.WARNING,
                subject={"hosts": tuple(sorted(wanted))},
                figures={"seconds": run.patience.memory_back},
            )
            run.tell(Remark(fact=fact))
            return
        time.sleep(run.patience.poll / 2)


def _short(host: Host, claims: Mapping[str, int] | None) -> bool:
    """Whether some GPU has less free than most of what was claimed on it; one of unknown memory never has."""
    if not claims:
        return False
    for gpu in host.gpus:
        claim = claims.get(gpu.uuid or "")
        if claim is not None and gpu.free_bytes is not None and gpu.free_bytes < claim * ENOUGH:
            return True
    return False
