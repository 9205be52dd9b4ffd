"""A deployment is its events: every order of them is one, a failure stays one, each member's end is where it belongs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.deploying.reduce import NOTHING, apply, reduce
from gpuplan.domain.deployment import ContainerRole, Deployment, Member, State
from gpuplan.domain.events import (
    At,
    Event,
    Failed,
    MemberSeen,
    Milestone,
    Phase,
    PhaseDone,
    PhaseStarted,
    Remark,
    SpecDecided,
    StateChanged,
    Transfer,
    Undone,
)
from gpuplan.domain.fact import Fact, Severity
from tests.unit.deploying.specs import native

FACT = Fact(code="GP811", severity=Severity.ERROR, subject={"host": "a"}, figures={})
DECIDED = SpecDecided(spec=native(), spec_hash="h", generation="g")
LEADER = Member(host="a", container="n0", role=ContainerRole.LEADER, state="running")
FOLLOWER = Member(host="b", container="n1", role=ContainerRole.FOLLOWER, rank=1, state="running")
FAILED = Failed(phase=Phase.LOAD, facts=(FACT,))


def after(*events: Event) -> Deployment:
    return reduce(At(at=float(number), event=event) for number, event in enumerate(events))


def begun(*phases: Phase) -> list[Event]:
    return [PhaseStarted(phase=phase, awaits="") for phase in phases]


RUNNING = [
    DECIDED,
    *begun(Phase.CONNECT, Phase.CREATE, Phase.START),
    MemberSeen(member=LEADER),
    MemberSeen(member=FOLLOWER),
    *begun(Phase.ANSWER),
    PhaseDone(phase=Phase.ANSWER, seconds=1.0),
]

members = st.builds(
    Member,
    host=st.sampled_from("ab"),
    container=st.sampled_from(["n0", "n1"]),
    role=st.sampled_from(ContainerRole),
    state=st.sampled_from(["created", "running", "exited", "dead", "missing", "unknown", "paused", "odd"]),
    health=st.sampled_from([None, "starting", "healthy", "unhealthy"]),
    exit_code=st.none() | st.integers(0, 255),
    oom_killed=st.booleans(),
    message=st.none() | st.text(max_size=5),
)
phases = st.sampled_from(Phase)
events: st.SearchStrategy[Event] = st.one_of(
    st.just(DECIDED),
    st.builds(PhaseStarted, phase=phases, awaits=st.just("")),
    st.builds(PhaseDone, phase=phases, seconds=st.just(1.0)),
    st.builds(Transfer, phase=phases, host=st.just("a"), done_bytes=st.integers(0), total_bytes=st.none()),
    st.builds(MemberSeen, member=members),
    st.builds(
        Milestone, host=st.just("a"), container=st.just("n0"), kind=st.just("x"), text=st.text(max_size=5)
    ),
    st.just(Remark(fact=FACT)),
    st.builds(Failed, phase=phases, facts=st.sampled_from([(), (FACT,)])),
    st.builds(
        Undone,
        host=st.sampled_from("ab"),
        container=st.sampled_from(["n0", "n1"]),
        what=st.sampled_from(["removed", "restored", "left", "kept"]),
        why=st.none() | st.just("gone"),
    ),
    st.builds(StateChanged, state=st.sampled_from(State), message=st.none() | st.text(max_size=5)),
)


@given(st.lists(events, max_size=30))
def test_any_events_are_a_deployment(told: list[Event]) -> None:
    made = after(*told)
    assert len({(member.host, member.container) for member in made.members}) == len(made.members)
    assert all(member.message for member in made.members if member.state in {"exited", "dead", "missing"})


@given(st.lists(events, max_size=20), st.sampled_from([(), (FACT,)]))
def test_a_failure_ends_in_an_error_with_a_message(told: list[Event], facts: tuple[Fact, ...]) -> None:
    made = after(*told, Failed(phase=Phase.READY, facts=facts))
    assert made.state is State.ERROR
    assert made.message


afterwards = events.filter(
    lambda event: (
        not isinstance(event, StateChanged)
        and getattr(event, "phase", None) not in {Phase.CONNECT, Phase.STOP}
    )
)


@given(st.lists(events, max_size=10), st.lists(afterwards, max_size=10))
def test_what_follows_a_failure_does_not_mend_it(before: list[Event], following: list[Event]) -> None:
    assert after(*before, FAILED, *following).state is State.ERROR


@given(st.lists(events, max_size=12), st.lists(events, max_size=12))
def test_events_in_two_parts_are_the_events(first: list[Event], second: list[Event]) -> None:
    ats = [At(at=0.0, event=event) for event in (*first, *second)]
    assert reduce(ats[len(first) :], reduce(ats[: len(first)])) == reduce(ats)


def test_preparing_starting_running() -> None:
    states = []
    made = NOTHING
    for event in RUNNING:
        made = apply(made, At(at=0.0, event=event))
        states.append(made.state)
    assert list(dict.fromkeys(states)) == [State.PREPARING, State.STARTING, State.RUNNING]
    assert made.name == "qwen3"
    assert made.endpoint == "http://10.0.0.11:40000"
    assert made.members == (LEADER, FOLLOWER)
    assert made.message is None


@pytest.mark.parametrize("role", [ContainerRole.LEADER, ContainerRole.SINGLE, ContainerRole.RAY_HEAD])
def test_the_leaders_end_is_the_deployments(role: ContainerRole) -> None:
    ended = replace(LEADER, role=role, state="exited", exit_code=1)
    made = after(*RUNNING, MemberSeen(member=ended))
    assert made.state is State.ERROR
    assert made.message == f"{role.value} on a ended with exit code 1"


def test_a_followers_end_is_the_followers() -> None:
    ended = replace(FOLLOWER, state="exited", exit_code=137, oom_killed=True)
    made = after(*RUNNING, MemberSeen(member=ended))
    assert made.state is State.UNHEALTHY
    assert made.message is None
    assert made.members[1].message == "follower on b was killed: out of memory"


def test_dockers_own_words_stay() -> None:
    refused = replace(LEADER, state="exited", message="could not select device driver")
    assert after(*RUNNING, MemberSeen(member=refused)).message == "could not select device driver"


def test_unhealthy_and_well_again() -> None:
    ill = MemberSeen(member=replace(LEADER, health="unhealthy"))
    assert after(*RUNNING, ill).state is State.UNHEALTHY
    assert after(*RUNNING, ill, MemberSeen(member=LEADER)).state is State.RUNNING


def test_members_that_are_stopped_are_no_error() -> None:
    ended = MemberSeen(member=replace(LEADER, state="exited", exit_code=143))
    stopping = after(*RUNNING, *begun(Phase.STOP), ended)
    assert stopping.state is State.STOPPED
    done = after(*RUNNING, *begun(Phase.STOP), ended, PhaseDone(phase=Phase.STOP, seconds=3.0))
    assert (done.state, done.message) == (State.STOPPED, None)


def test_a_helper_that_ends_is_no_error() -> None:
    helper = replace(LEADER, container="h", role=ContainerRole.HELPER, state="exited", exit_code=0)
    assert after(*RUNNING, MemberSeen(member=helper)).state is State.RUNNING


def test_undone_members_are_gone_and_what_is_left_says_why() -> None:
    removed = Undone(host="a", container="n0", what="removed")
    left = Undone(host="b", container="n1", what="left", why="no answer; gpuplan stop removes it")
    made = after(*RUNNING, FAILED, removed, left)
    assert [member.container for member in made.members] == ["n1"]
    assert made.members[0].message == "no answer; gpuplan stop removes it"


def test_a_state_that_is_told_is_the_state() -> None:
    made = after(*RUNNING, FAILED, StateChanged(state=State.RUNNING, message="rolled back"))
    assert (made.state, made.message) == (State.RUNNING, "rolled back")


def test_the_first_reason_is_kept() -> None:
    ended = MemberSeen(member=replace(LEADER, state="exited", exit_code=1))
    assert after(*RUNNING, ended, FAILED).message == "leader on a ended with exit code 1"
    assert after(DECIDED, FAILED).message == "failed in the phase load [GP811]"


def test_a_new_attempt_begins_anew() -> None:
    made = after(*RUNNING, FAILED, *begun(Phase.CONNECT))
    assert (made.state, made.message) == (State.PREPARING, None)
