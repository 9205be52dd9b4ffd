"""Stopping and restarting what the demo deployed, told as `operations.stop` and `operations.restart` tell it."""

import threading
from collections.abc import Callable
from dataclasses import replace

from gpuplan.deploying.host_lock import Holder
from gpuplan.deploying.observed import Group
from gpuplan.domain.deployment import Member, State
from gpuplan.domain.events import (
    Event,
    MemberSeen,
    Milestone,
    Phase,
    PhaseDone,
    PhaseStarted,
    StateChanged,
    Undone,
)
from gpuplan.engine.startup_log import milestone
from gpuplan.operations.host_locks import Locked
from gpuplan.operations.stop import Intended, Stopped
from gpuplan.tui.demo_run import WHO
from gpuplan.tui.demo_script import LogLine, start_lines
from gpuplan.tui.demo_world import DemoWorld, iso
from gpuplan.units import plural


def stop(
    world: DemoWorld,
    name: str,
    confirm: Callable[[Intended], bool],
    on_event: Callable[[Event], None],
    drain_seconds: int,
) -> Stopped:
    """End a deployment; its memory is back when this returns. Raises UsageError, Locked."""
    group = world.group(name)
    intended = Intended(deployment=world.deployment(group), containers=group.containers, silent=())
    if not confirm(intended):
        return Stopped(name=name, asked=False)
    _locked(world, group, "stop")
    try:
        _end(world, group, on_event, drain_seconds)
        removed = []
        for one in group.containers:
            world.remove((one.host, one.name))
            removed.append((one.host, one.name))
            on_event(Undone(host=one.host, container=one.name, what="removed"))
        _wait_for_memory(world, on_event)
        return Stopped(name=name, removed=tuple(removed))
    finally:
        world.unlock(group.hosts)


def restart(world: DemoWorld, name: str, on_event: Callable[[Event], None], drain_seconds: int) -> None:
    """End its containers and start them again. Raises UsageError, Locked."""
    group = world.group(name)
    _locked(world, group, "restart")
    try:
        _end(world, group, on_event, drain_seconds)
        for one in group.containers:
            world.change((one.host, one.name), state="exited", exit_code=0, health=None, loaded=False)
            on_event(MemberSeen(member=replace(one.member, state="exited", health=None, exit_code=0)))
        _wait_for_memory(world, on_event)
        _start_again(world, group, on_event)
    finally:
        world.unlock(group.hosts)


def _locked(world: DemoWorld, group: Group, purpose: str) -> None:
    """Raises Locked while a deploy of the demo works on one of its hosts."""
    since = iso(world.clock.now())
    holder = Holder(who=WHO, since=since, deployment=group.name, purpose=purpose)
    held = world.lock(group.hosts, holder)
    if held is not None:
        raise Locked(*held)


def _end(world: DemoWorld, group: Group, on_event: Callable[[Event], None], drain_seconds: int) -> None:
    running = sum(load.running or 0 for load in world.loads(group).values())
    if running and drain_seconds > 0:
        awaits = f"{running} requests to end"
        on_event(PhaseStarted(phase=Phase.STOP, awaits=awaits, deadline_seconds=float(drain_seconds)))
        _pass(world, min(1.0, drain_seconds))
    awaits = f"{len(group.containers)} containers to end"
    on_event(PhaseStarted(phase=Phase.STOP, awaits=awaits, deadline_seconds=60.0))
    _pass(world, 1.5)
    on_event(PhaseDone(phase=Phase.STOP, seconds=1.5))


def _wait_for_memory(world: DemoWorld, on_event: Callable[[Event], None]) -> None:
    awaits = "the memory of its GPUs to come back"
    on_event(PhaseStarted(phase=Phase.STOP, awaits=awaits, deadline_seconds=30.0))
    _pass(world, 0.5)
    on_event(PhaseDone(phase=Phase.STOP, seconds=0.5))


def _start_again(world: DemoWorld, group: Group, on_event: Callable[[Event], None]) -> None:
    awaits = f"{plural(len(group.current), 'container')} to start"
    on_event(PhaseStarted(phase=Phase.START, awaits=awaits, deadline_seconds=120.0))
    began = world.clock.now()
    said: list[tuple[LogLine, Member]] = []
    for one in group.current:
        place = one.host, one.name
        health = "starting" if one.health is not None else None
        again = world.change(place, state="running", health=health, exit_code=None, started_at=iso(began))
        lines = start_lines(again, began)
        world.prints(again, lines)
        said += [(line, one.member) for line in lines]
        on_event(MemberSeen(member=again.observed.member))
    on_event(PhaseDone(phase=Phase.START, seconds=round(world.clock.now() - began, 1)))
    endpoints = ", ".join(one.url for one in group.endpoints)
    on_event(PhaseStarted(phase=Phase.LOAD, awaits=f"{endpoints} to answer", deadline_seconds=7200.0))
    for line, member in sorted(said, key=lambda entry: entry[0].at):
        _pass(world, line.at - world.clock.now())
        if (reached := milestone(line.text)) is not None:
            kind = reached.kind.value
            on_event(Milestone(host=member.host, container=member.container, kind=kind, text=reached.text))
    for one in group.current:
        health = "healthy" if one.health is not None else None
        up = world.change((one.host, one.name), loaded=True, health=health)
        on_event(MemberSeen(member=up.observed.member))
    on_event(PhaseDone(phase=Phase.LOAD, seconds=round(world.clock.now() - began, 1)))
    on_event(StateChanged(state=State.RUNNING))


def _pass(world: DemoWorld, length: float) -> None:
    world.clock.wait(max(0.0, length), threading.Event())
