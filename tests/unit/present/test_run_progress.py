"""A deploy's lines follow from its events alone: whatever they are, they fit the width and move no cursor."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.domain.deployment import ContainerRole, Deployment, DeploymentSpec, Member, State
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
from gpuplan.present.document import Lines, text_of, width_of
from gpuplan.present.run_progress import (
    NOTHING_YET,
    RunProgress,
    advanced,
    end_text,
    event_span,
    phase_lines,
    progress_text,
    state_words,
    steps_line,
)
from gpuplan.units import GIB
from tests.unit.deploying.specs import native, ray
from tests.unit.deploying.test_reduce import events

LEADER = Member(
    host="h100-a",
    container="gpuplan-qwen3-n0",
    role=ContainerRole.LEADER,
    state="running",
    gpu_indexes=(0, 1),
)
DECIDED = SpecDecided(spec=native(), spec_hash="h", generation="g")
PULL = Transfer(phase=Phase.IMAGE, host="h100-b", done_bytes=3 * GIB, total_bytes=10 * GIB)
CAUSE = Fact(code="GP818", severity=Severity.ERROR, subject={"deployment": "q"}, figures={"phase": "load"})
SAME = Fact(code="GP811", severity=Severity.INFO, subject={"deployment": "q"}, figures={"endpoint": ("x",)})


def after(*told: Event, begin: float = 100.0) -> RunProgress:
    return advanced(NOTHING_YET, [At(at=begin + number, event=event) for number, event in enumerate(told)])


def started(phase: Phase, awaits: str = "h1", limit: float | None = None) -> PhaseStarted:
    return PhaseStarted(phase=phase, awaits=awaits, deadline_seconds=limit)


def test_what_is_under_way_counts_down() -> None:
    progress = after(started(Phase.LOAD, "the engine to load", 600))
    assert text_of(phase_lines(progress, 100, 160.0)) == (
        "load: waits for the engine to load (60 s, 9 min left)"
    )
    assert "are over" in text_of(phase_lines(progress, 100, 900.0))
    assert text_of(phase_lines(NOTHING_YET, 100, 0.0)) == "beginning"
    done = advanced(progress, [At(at=170, event=PhaseDone(phase=Phase.LOAD, seconds=70))])
    assert text_of(phase_lines(done, 100, 171.0)) == "between two steps"


def test_phases_are_marked_and_those_skipped_are_left_out() -> None:
    progress = after(started(Phase.LOCK), PhaseDone(phase=Phase.LOCK, seconds=1), started(Phase.IMAGE))
    text = text_of(steps_line(progress, 200))
    assert text.startswith("■ lock  ▶ image  □ weights")
    failed = advanced(progress, [At(at=9, event=Failed(phase=Phase.IMAGE, facts=()))])
    assert "▲ image" in text_of(steps_line(failed, 200))
    undone = advanced(failed, [At(at=9, event=Undone(host="h", container="c", what="removed"))])
    assert "■ undo" in text_of(steps_line(undone, 200))


def test_a_host_shows_its_containers_and_what_comes_to_it() -> None:
    progress = after(
        DECIDED,
        started(Phase.IMAGE),
        PULL,
        MemberSeen(member=replace(LEADER, health="healthy")),
        Milestone(host="h100-a", container="gpuplan-qwen3-n0", kind="x", text="▄▄ Loading took 3 s"),
    )
    text = text_of(progress_text(progress, 80))
    assert "██████░░░░░░░░░░░░░░  pulling 3.0 of 10.0 GiB (30 %)" in text
    assert "gpuplan-qwen3-n0 (leader): running, healthy, GPU 0-1" in text
    assert "    Loading took 3 s" in text
    assert "not made yet" in text
    next_phase = advanced(progress, [At(at=9, event=started(Phase.CREATE))])
    assert "pulling" not in text_of(progress_text(next_phase, 80))


def test_members_that_ended_badly_are_told_without_colour() -> None:
    progress = after(MemberSeen(member=replace(LEADER, state="exited", exit_code=1)))
    assert "exited with code 1" in text_of(progress_text(progress, 80))


def test_the_state_is_one_line() -> None:
    progress = after(StateChanged(state=State.STARTING))
    assert state_words(progress, 160.0)[0] == "starting, 60 s"
    undoing = advanced(progress, [At(at=101, event=started(Phase.UNDO))])
    assert state_words(undoing, 160.0)[0] == "being taken back, 60 s"
    assert state_words(undoing, 160.0, ended=True)[0] == "starting, 1.0 s"


def test_a_failure_is_told_with_what_was_undone_and_its_logs() -> None:
    progress = after(
        DECIDED,
        Undone(host="h100-a", container="n0", what="removed"),
        Undone(host="h100-b", container="n1", what="left", why="silent"),
        Failed(phase=Phase.LOAD, facts=(CAUSE,), logs=tuple(f"/logs/{n}" for n in range(9))),
    )
    text = text_of(end_text(progress, 5, None, "error: said twice", 80))
    assert "was not deployed" in text
    assert "[GP818]" in text
    assert "hint:" in text
    assert "h100-a       removed n0" in text
    assert "left behind: n1 (silent)" in text
    assert "/logs/0" in text
    assert "said twice" not in text


def test_an_end_without_events_is_what_it_said() -> None:
    text = text_of(end_text(NOTHING_YET, 2, None, "error: plan.json: [bad]\nhint: again", 80))
    assert text.startswith("error: plan.json: [bad]\nhint: again")
    assert "Nothing was started." in text
    killed = text_of(end_text(after(DECIDED), -9, None, "killed", 80))
    assert "`gpuplan status` shows what runs" in killed


def test_an_end_that_is_well() -> None:
    serves = Deployment(name="q", state=State.RUNNING, endpoint="http://h:1", endpoints=("http://h:1",))
    assert "q serves" in text_of(end_text(after(DECIDED), 0, serves, "", 80))
    assert "serves already" in text_of(end_text(after(Remark(fact=SAME)), 0, serves, "", 80))
    assert "shows it" in text_of(end_text(after(DECIDED), 0, None, "", 80))


def fits(lines: Lines, width: int) -> bool:
    return all(sum(width_of(span.text) for span in line) <= width for line in lines)


@given(st.lists(events, max_size=30), st.sampled_from([40, 80, 120]))
def test_any_events_fit_the_width(told: list[Event], width: int) -> None:
    progress = after(*told)
    assert fits(progress_text(progress, width), width)
    assert fits(phase_lines(progress, width, 500.0), width)
    assert fits(steps_line(progress, width), width)
    assert end_text(progress, 5, None, "error: x", width)
    for event in told:
        assert event_span(At(at=0.0, event=event), "text").text == "text"


@given(st.lists(events, max_size=12), st.lists(events, max_size=12))
def test_events_in_two_parts_are_the_events(first: list[Event], second: list[Event]) -> None:
    ats = [At(at=float(number), event=event) for number, event in enumerate((*first, *second))]
    parts = advanced(advanced(NOTHING_YET, ats[: len(first)]), ats[len(first) :])
    assert parts == advanced(NOTHING_YET, ats)


@given(st.text(max_size=80))
def test_remote_text_moves_no_cursor(text: str) -> None:
    progress = after(
        DECIDED,
        started(Phase.IMAGE, text),
        replace(PULL, host=text or "h", about=text),
        MemberSeen(member=replace(LEADER, message=text, container=text)),
        Milestone(host="h100-a", container=text, kind="x", text=text),
        Undone(host=text, container=text, what="left", why=text),
    )
    for lines in (
        progress_text(progress, 80),
        phase_lines(progress, 80, 0.0),
        end_text(progress, 5, None, text, 80),
    ):
        assert all(span.text.isprintable() for line in lines for span in line)


@pytest.mark.parametrize("spec", [native(), ray()])
def test_every_container_has_its_line(spec: DeploymentSpec) -> None:
    text = text_of(progress_text(after(replace(DECIDED, spec=spec)), 100))
    assert all(container.name in text for container in spec.containers)
