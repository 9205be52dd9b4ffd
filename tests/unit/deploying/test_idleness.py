"""The clock of a deployment over looks far apart (S4.8): late at worst, never early."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.deploying.idleness import elapsed, weighed
from gpuplan.deploying.observed import Container, Group, container_of, grouped
from gpuplan.deploying.state_rules import Health, deployment_of
from gpuplan.domain import labels
from gpuplan.domain.deployment import Load
from gpuplan.domain.idle import Judgement, Moment, Outcome, Sighting, Why

KEEP = 600
QUIET = Load(running=0, waiting=0, requests=7, tokens=700)


def container(host: str = "a", server: int = 0, *, generation: str = "g1", **more: Any) -> Container:
    members = more.get("members", [(host, server)])
    listed = ", ".join(
        f'{{"host": "{name}", "container": "c-{name}", "role": "replica", "rank": 0, "server": {number}}}'
        for name, number in members
    )
    given_labels = {
        labels.MANAGED: "true",
        labels.DEPLOYMENT: "x",
        labels.ROLE: "replica",
        labels.SERVER: str(server),
        labels.GENERATION: generation,
        labels.MEMBERS: f"[{listed}]",
        labels.ENDPOINT: f"http://10.0.0.1:{40000 + server}",
    }
    keep = more.get("keep", str(KEEP))
    if keep is not None:
        given_labels[labels.KEEP_ALIVE] = keep
    return container_of(
        host,
        {
            "Id": more.get("id", f"id-{host}-{generation}"),
            "Name": f"/c-{host}",
            "Created": more.get("created", "2026-11-22T00:59:00Z"),
            "State": {
                "Status": more.get("status", "running"),
                "StartedAt": more.get("started", "2026-11-22T01:00:00Z"),
            },
            "Config": {"Labels": given_labels},
        },
    )


def group(*containers: Container, asked: frozenset[str] = frozenset("ab")) -> Group:
    (found,) = grouped(containers or (container(),), asked)
    return found


def at(seconds: float, *, boot: str = "", steady: float | None = None) -> Moment:
    return Moment(wall=1e9 + seconds, boot=boot, steady=seconds if steady is None else steady)


def judge(
    found: Group,
    loads: Mapping[int, Load | None],
    before: Sighting | None,
    now: Moment,
    idle_for: int | None = None,
) -> tuple[Judgement, Sighting | None]:
    health = {server: Health(status=200) for server, load in loads.items() if load is not None}
    known = [load for load in loads.values() if load is not None]
    deployment = deployment_of(found, health=health, loads=known)
    return weighed(found, deployment, loads, before, now, idle_for)


def seen(now: Moment, load: Load = QUIET, found: Group | None = None) -> Sighting:
    _, sighting = judge(found or group(), {0: load}, None, now)
    assert sighting is not None
    return sighting


def test_the_first_look_starts_the_clock_however_long_it_runs() -> None:
    judgement, sighting = judge(group(), {0: QUIET}, None, at(0))
    assert (judgement.outcome, judgement.why) == (Outcome.KEPT, Why.FIRST_SEEN)
    assert (judgement.idle_seconds, judgement.remaining_seconds) == (0, KEEP)
    assert sighting is not None
    assert sighting.since == at(0)


@pytest.mark.parametrize(
    ("later", "outcome", "why", "left"),
    [(599, Outcome.KEPT, Why.NOT_YET, 1), (600, Outcome.WOULD_BE_STOPPED, Why.IDLE, 0)],
)
def test_it_is_due_when_nothing_moved_for_as_long(later: int, outcome: Outcome, why: Why, left: int) -> None:
    judgement, sighting = judge(group(), {0: QUIET}, seen(at(0)), at(later))
    assert (judgement.outcome, judgement.why, judgement.remaining_seconds) == (outcome, why, left)
    assert sighting is not None
    assert (sighting.since, sighting.looked) == (at(0), at(later).wall)


@pytest.mark.parametrize(
    "load",
    [
        replace(QUIET, requests=8),
        replace(QUIET, requests=0, tokens=0),
        replace(QUIET, tokens=701),
        replace(QUIET, tokens=None),
    ],
    ids=["served", "started again", "broken off", "other figures"],
)
def test_figures_that_moved_start_it_anew(load: Load) -> None:
    judgement, sighting = judge(group(), {0: load}, seen(at(0)), at(5000))
    assert (judgement.outcome, judgement.why) == (Outcome.KEPT, Why.FIRST_SEEN)
    assert sighting is not None
    assert sighting.since == at(5000)


@pytest.mark.parametrize("busy", [{"running": 1}, {"waiting": 1}])
def test_requests_in_flight_hold_it_and_start_it_anew(busy: dict[str, int]) -> None:
    load = replace(QUIET, **busy)
    judgement, sighting = judge(group(), {0: load}, seen(at(0)), at(5000), idle_for=0)
    assert (judgement.outcome, judgement.why) == (Outcome.KEPT, Why.IN_FLIGHT)
    assert sighting is not None
    assert sighting.since == at(5000)


@pytest.mark.parametrize("changed", [{"started": "2026-11-22T02:00:00Z"}, {"id": "other"}])
def test_a_container_that_was_started_again_counts_anew(changed: dict[str, Any]) -> None:
    judgement, _ = judge(group(container(**changed)), {0: QUIET}, seen(at(0)), at(5000))
    assert judgement.why is Why.FIRST_SEEN


@pytest.mark.parametrize(
    ("keep", "why"), [(None, Why.NO_KEEP_ALIVE), ("-1", Why.NEVER), ("²", Why.NO_KEEP_ALIVE)]
)
@pytest.mark.parametrize("idle_for", [None, 0])
def test_what_has_no_keep_alive_is_never_stopped(keep: str | None, why: Why, idle_for: int | None) -> None:
    judgement, sighting = judge(group(container(keep=keep)), {0: QUIET}, None, at(0), idle_for)
    assert (judgement.outcome, judgement.why) == (Outcome.KEPT, why)
    assert sighting is None


@pytest.mark.parametrize("keep", ["--5", "9" * 5000, "", "1e3", "-"])
def test_a_label_that_makes_no_sense_is_none(keep: str) -> None:
    assert deployment_of(group(container(keep=keep))).keep_alive_seconds is None


def test_another_time_counts_for_those_that_have_one() -> None:
    judgement, _ = judge(group(), {0: QUIET}, seen(at(0)), at(100), idle_for=60)
    assert (judgement.outcome, judgement.keep_alive_seconds) == (Outcome.WOULD_BE_STOPPED, 60)
    judgement, _ = judge(group(), {0: QUIET}, seen(at(0)), at(700), idle_for=7200)
    assert judgement.outcome is Outcome.KEPT


def test_nothing_at_all_is_due_at_the_first_idle_look() -> None:
    judgement, _ = judge(group(container(keep="0")), {0: QUIET}, None, at(0))
    assert judgement.outcome is Outcome.WOULD_BE_STOPPED


@pytest.mark.parametrize("missing", ["running", "waiting", "requests"])
def test_a_server_without_figures_is_left_alone(missing: str) -> None:
    load = replace(QUIET, **{missing: None})
    judgement, sighting = judge(group(), {0: load}, seen(at(0)), at(5000))
    assert (judgement.outcome, judgement.why, sighting) == (Outcome.UNKNOWN, Why.NO_FIGURES, None)


def test_every_server_has_to_answer() -> None:
    both = [("a", 0), ("b", 1)]
    found = group(container("a", 0, members=both), container("b", 1, members=both))
    _, before = judge(found, {0: QUIET, 1: QUIET}, None, at(0))
    judgement, _ = judge(found, {0: QUIET, 1: QUIET}, before, at(5000))
    assert judgement.outcome is Outcome.WOULD_BE_STOPPED
    swapped = {0: replace(QUIET, requests=8), 1: replace(QUIET, requests=6)}
    judgement, _ = judge(found, swapped, before, at(5000))
    assert judgement.why is Why.FIRST_SEEN, "the sum is the same"
    deployment = deployment_of(found, health={0: Health(status=200), 1: Health(status=200)}, loads=[QUIET])
    judgement, sighting = weighed(found, deployment, {0: QUIET, 1: None}, before, at(5000))
    assert (judgement.outcome, judgement.why, sighting) == (Outcome.UNKNOWN, Why.SILENT, None)
    assert judgement.detail == "the server on b"


def test_a_host_that_was_not_heard_leaves_it_alone() -> None:
    both = [("a", 0), ("b", 1)]
    found = group(container("a", 0, members=both), asked=frozenset("a"))
    judgement, sighting = judge(found, {0: QUIET}, seen(at(0)), at(5000))
    assert (judgement.outcome, judgement.why, judgement.detail, sighting) == (
        Outcome.UNKNOWN, Why.SILENT, "b", None,
    )  # fmt: skip


@pytest.mark.parametrize("status", ["created", "exited", "restarting"])
def test_what_does_not_run_is_not_idle(status: str) -> None:
    judgement, _ = judge(group(container(status=status)), {}, seen(at(0)), at(5000))
    assert (judgement.outcome, judgement.why) == (Outcome.KEPT, Why.NOT_RUNNING)


def test_what_is_unhealthy_or_paused_is_left_alone() -> None:
    judgement, _ = judge(group(container(status="paused")), {0: QUIET}, seen(at(0)), at(5000))
    assert (judgement.outcome, judgement.why) == (Outcome.UNKNOWN, Why.UNHEALTHY)


@pytest.mark.parametrize(("status", "why"), [("running", Why.OTHERS_RUN), ("exited", Why.IDLE)])
def test_another_generation_that_runs_is_left_alone(status: str, why: Why) -> None:
    older = container("b", generation="g0", status=status, created="2026-11-21T00:00:00Z")
    judgement, _ = judge(group(container(), older), {0: QUIET}, seen(at(0)), at(5000))
    assert judgement.why is why


def test_a_clock_that_was_set_makes_nothing_idle() -> None:
    begun = at(0, boot="b1", steady=100)
    assert elapsed(begun, at(10**8, boot="b1", steady=160)) == 60
    assert elapsed(begun, at(50, boot="b1", steady=160)) == 50
    assert elapsed(begun, at(10**6, boot="b2", steady=5)) == 10**6, (
        "another boot: the wall clock is all there is"
    )
    assert elapsed(begun, at(-70)) == 0
    judgement, sighting = judge(group(), {0: QUIET}, seen(at(10**8)), at(0))
    assert judgement.why is Why.FIRST_SEEN, "it was seen in a time to come"
    assert sighting is not None
    assert sighting.since == at(0)


STEPS = st.lists(
    st.tuples(st.integers(1, 400), st.sampled_from(["idle", "served", "in flight"]), st.booleans()),
    max_size=30,
)


@given(STEPS)
def test_two_who_look_from_elsewhere_are_never_early(steps: list[tuple[int, str, bool]]) -> None:
    """Whatever happens between looks, and whoever looks: due means that long without a request."""
    now, worked, requests = 0, 0, 7
    memory: dict[bool, Sighting | None] = {True: None, False: None}
    for passed, what, who in steps:
        now += passed
        if what != "idle":
            worked = now
            requests += what == "served"
        load = replace(QUIET, requests=requests, running=int(what == "in flight"), tokens=worked)
        judgement, sighting = judge(group(), {0: load}, memory[who], at(now))
        if judgement.outcome is Outcome.WOULD_BE_STOPPED:
            assert now - worked >= KEEP
        memory[who] = sighting
