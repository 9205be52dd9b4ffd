"""What runs under the name already: left alone when it is what is asked, else set aside, stopped, and its memory awaited.

GPUs hold one model at a time, so the old one stops before the new one starts; it is kept until the new one serves. It
gets the name of what was set aside before it stops: whoever finds it later knows that it ran.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from gpuplan.deploying.observed import Container
from gpuplan.domain import labels
from gpuplan.domain.deployment import ContainerRole
from gpuplan.domain.events import Phase, Remark, Undone
from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Gpu
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.deploy_run import Halted, Run, SetAside, halted, host_lost
from gpuplan.operations.deploy_undo import everywhere, remove_found
from gpuplan.operations.deployed import (
    LIST_SECONDS,
    OLD,
    Existing,
    Generation,
    list_containers,
)
from gpuplan.operations.kept_logs import keep_logs
from gpuplan.operations.memory_back import await_memory, owed

STOP_SECONDS = 60
IMAGE_HELPER = "gpuplan-helper-image-"
"""Begins the names of containers that tell what is in an image (`image_facts`)."""


def same_running(existing: Existing, spec_hash: str) -> Generation | None:
    """The generation that is what is asked for and runs, serving or about to."""
    return next((one for one in existing.generations if one.spec_hash == spec_hash and one.running), None)


def require_own_name(run: Run, existing: Existing, locked: Sequence[str]) -> None:
    """Nobody else deploys under this name on other hosts at this moment. Raises Halted (GP821).

    Locks are of hosts: two deploys of one name on different hosts see each other by their containers only.
    """
    others = sorted(
        {
            found.host
            for found in existing.containers
            if found.host not in locked and found.generation != run.generation
        }
    )
    if others:
        raise halted(Phase.CREATE, "GP821", {"deployment": run.spec.name}, hosts=tuple(others))


def clear_helpers(run: Run) -> None:
    """Remove what killed deploys left of their questions to images: under the lock nobody asks any. Never raises."""
    from gpuplan.remote import containers as remote

    def clear(host: str) -> None:
        engine = run.opened.engine_of(host)
        for found in list_containers(run.opened, host, ""):
            if found.name.startswith(IMAGE_HELPER):
                remote.remove(engine, found.id)
                why = "an interrupted deploy had left it"
                run.tell(Undone(host=host, container=found.name, what="removed", why=why))

    on_each({host: partial(clear, host) for host in run.spec.hosts}, LIST_SECONDS)


def take_up(run: Run, existing: Existing, already: Generation) -> None:
    """Go on with a generation that runs as asked: under its own names, what others left removed. Raises Halted.

    What had been set aside for it is kept until it serves.
    """
    kept = next((one for one in existing.generations if one is not already and one.aside), None)
    rest = tuple(
        found for one in existing.generations if one not in (already, kept) for found in one.containers
    )
    if rest:
        _removed(run, rest)
    run.generation = already.id
    for found in already.containers:
        run.made[found.host, found.name.partition(OLD)[0]] = found.id
    moved = {found.host for found in already.containers if OLD in found.name}
    _require(everywhere(run, moved, partial(_named_again, run, already)))
    for found in in_starting_order(kept.containers) if kept is not None else ():
        run.aside.append(SetAside(found=found, name_before=found.name.partition(OLD)[0], ran=True))


def set_aside(run: Run, existing: Existing) -> None:
    """Set the last good generation aside and stop it, remove what interrupted deploys left. Raises Halted."""
    if not existing.generations:
        return
    kept = next((one for one in existing.generations if one.complete and one.began), None)
    rest = tuple(found for one in existing.generations if one is not kept for found in one.containers)
    names = f"{run.spec.name} as it was" if kept is not None else f"what is left of {run.spec.name}"
    run.tell.phase(Phase.REPLACE, f"{names} to stop and give its memory back", STOP_SECONDS + 30.0)
    before = {host.name: host.gpus for host in run.opened.fleet.hosts}
    with run.uninterrupted():
        if rest:
            _removed(run, rest)
        if kept is None:
            return
        hosts = {found.host for found in kept.containers}
        _require(everywhere(run, hosts, partial(_stop, run, kept)))
    for fact in _held_still(run, kept, before):
        run.tell(Remark(fact=fact))


def _held_still(run: Run, stopped: Generation, before: Mapping[str, Sequence[Gpu]]) -> tuple[Fact, ...]:
    """Wait until the devices have back what the stopped containers held (S4.7); GP854 for each that has not."""

    def read(hosts: Sequence[str]) -> dict[str, tuple[Gpu, ...]]:
        return {host.name: host.gpus for host in run.opened.read_again(hosts).hosts if host.name in hosts}

    return await_memory(read, owed(stopped.containers, before), seconds=run.patience.memory_back)


def _removed(run: Run, rest: tuple[Container, ...]) -> None:
    keep_logs(run, rest)
    _require(remove_found(run, rest))
    for found in rest:
        why = "an interrupted deploy had left it"
        run.tell(Undone(host=found.host, container=found.name, what="removed", why=why))


def _require(outcomes: Mapping[str, set[str] | Outcome]) -> None:
    lost = [
        fact
        for host, outcome in outcomes.items()
        if isinstance(outcome, Outcome)
        for fact in host_lost(Phase.REPLACE, host, outcome.why).facts
    ]
    if lost:
        raise Halted(Phase.REPLACE, *lost)


def _named_again(run: Run, generation: Generation, host: str) -> set[str]:
    names = set()
    for found in generation.containers:
        if found.host == host:
            base = found.name.partition(OLD)[0]
            _rename(run, found, base)
            names.add(base)
    return names


def _stop(run: Run, kept: Generation, host: str) -> set[str]:
    """Rename the containers of a host, so that the new ones can have their names; then stop them, servers first."""
    from gpuplan.remote import containers as remote

    mine = in_starting_order(tuple(one for one in kept.containers if one.host == host))
    already = {one.found.id for one in run.aside}
    for found in mine:
        base = found.name.partition(OLD)[0]
        name = f"{base}{OLD}{kept.id[:8] or found.id[:8]}"
        if found.id not in already:
            renamed = replace(found, member=replace(found.member, container=name))
            run.aside.append(SetAside(found=renamed, name_before=base, ran=kept.meant_to_run))
        _rename(run, found, name)
    for found in reversed(mine):
        if found.state == "running":
            remote.stop(run.opened.engine_of(host), found.id, STOP_SECONDS)
    return {found.name for found in mine}


def in_starting_order(containers: Sequence[Container]) -> tuple[Container, ...]:
    """In the order they start again: a Ray head before the server that shares its processes, else leaders first."""
    head = ContainerRole.RAY_HEAD.value
    return tuple(sorted(containers, key=lambda one: (one.labels.get(labels.ROLE) != head, one.member.rank)))


def _rename(run: Run, found: Container, name: str) -> None:
    """Whatever it is called by now: this is tried again after a lost connection."""
    from gpuplan.remote import containers as remote

    engine = run.opened.engine_of(found.host)
    document = remote.inspect(engine, found.id)
    if document is None or str(document.get("Name", "")).removeprefix("/") != name:
        remote.rename(engine, found.id, name)
