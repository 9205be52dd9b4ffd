"""S4.5, S4.10: a deploy that waits for room looks again until it fits, and ends in time; what never fits is not waited for."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.events import At, Phase, PhaseDone, PhaseStarted, Remark
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Plan
from gpuplan.errors import ExitCode, NoHostError
from gpuplan.operations.capacity_queue import MOST_WAITING, QueueFull, Turn
from gpuplan.operations.deploy_run import Teller
from gpuplan.operations.deploy_wait import Clock, RoomWait, Wait, missing_of
from gpuplan.operations.stopped import FleetChanged, NeverFits, NothingFits, NotReady, StillNoRoom
from gpuplan.present.findings import word
from gpuplan.present.plan_document import finding_document, plain
from gpuplan.sources.event_json import read_fact
from tests.made_plans import FLEETS, LAB, made

SECONDS = 60.0


class Time:
    """Passes while somebody pauses."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.paused: list[float] = []
        self.before: Callable[[], object] = lambda: None

    def __call__(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        assert seconds > 0
        self.before()
        self.paused.append(seconds)
        self.seconds += seconds


@pytest.fixture(scope="module")
def nothing() -> Plan:
    plan = made("deepseek-ai/DeepSeek-R1", LAB)
    assert plan.recommended is None
    return plan


class Waiting:
    """A wait in a world where looks have the given results, one after the other; the last one stays."""

    def __init__(self, path: Path, looks: Sequence[Any], *, seconds: float = SECONDS) -> None:
        self.time = Time()
        self.events: list[Any] = []
        self.looks = list(looks)
        self.again = 0
        self.turn = Turn(path, "qwen3", clock=self.time)
        wait = Wait(seconds=seconds, queue=path, clock=Clock(now=self.time, pause=self.time.pause))
        self.room = RoomWait(wait, self.turn, "qwen3", Teller(self._hear))

    def _hear(self, at: At) -> None:
        self.events.append(at.event)

    def _look(self) -> Any:
        found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(found, Exception):
            raise found
        return found

    def _again(self) -> None:
        self.again += 1

    def run(self, ever: Callable[[], object] = lambda: None) -> Any:
        with self.turn:
            return self.room.until_fits(self._look, self._again, ever)

    @property
    def codes(self) -> list[str]:
        return [event.fact.code for event in self.events if isinstance(event, Remark)]


def held(code: str, **figures: object) -> FleetChanged:
    subject = {"host": "h1", "gpu": 0, "deployment": "other"}
    return FleetChanged([Fact(code=code, severity=Severity.ERROR, subject=subject, figures=figures)])


def test_what_fits_at_once_is_not_queued(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path / "q", ["placed"])
    assert waiting.run() == "placed"
    assert (waiting.events, waiting.again) == ([], 0)


def test_it_looks_until_it_fits(tmp_path: Path, nothing: Plan) -> None:
    loading = NoHostError("no usable GPU in the fleet (not loading: 0 hosts with 0 GPUs)")
    waiting = Waiting(tmp_path / "q", [loading, loading, NothingFits(nothing), "placed"])
    assert waiting.run() == "placed"
    assert waiting.again == 3
    assert waiting.time.paused == [2.0, 2.0, 2.0], "a thirtieth of a minute"
    begun, done = waiting.events[0], waiting.events[-1]
    assert begun == PhaseStarted(phase=Phase.CAPACITY, awaits="room for qwen3", deadline_seconds=SECONDS)
    assert isinstance(done, PhaseDone)
    assert waiting.codes == ["GP890", "GP890"], "told again when the reason is another one"
    told = word(waiting.events[1].fact)
    assert told.headline == f"waiting for room for qwen3: {loading.message}"
    assert "nobody else waits" in told.because[0]


def test_the_time_ends_and_what_was_missing_is_said(tmp_path: Path, nothing: Plan) -> None:
    waiting = Waiting(tmp_path / "q", [NothingFits(nothing)], seconds=600)
    with pytest.raises(StillNoRoom) as over:
        waiting.run()
    assert over.value.exit_code is ExitCode.NO_FIT
    assert over.value.plan is nothing
    (fact,) = over.value.facts
    assert fact.figures["missing"] == refusal(nothing)
    lacks = word(refusal(nothing))
    assert word(fact).headline == f"no room for qwen3 within 10 min: {lacks.headline} [{lacks.code}]"
    assert sum(waiting.time.paused) == 600
    assert set(waiting.time.paused) == {10.0}
    assert Waiting(tmp_path / "q", ["placed"]).turn.others() == (), "it has left the queue"


def test_what_never_fits_is_refused_at_once(tmp_path: Path, nothing: Plan) -> None:
    waiting = Waiting(tmp_path / "q", [NothingFits(nothing)])

    def never() -> None:
        raise NeverFits(nothing)

    with pytest.raises(NeverFits) as refused:
        waiting.run(never)
    assert refused.value.exit_code is ExitCode.NO_FIT
    assert "would not fit with nothing else running" in refused.value.message
    assert (waiting.time.paused, waiting.events) == ([], [])


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (held("GP804", reason="loading", deployments=("other",)), True),
        (held("GP805", then_bytes=2, now_bytes=1, claim_bytes=2), True),
        (held("GP807", then="fits", now="no_fit"), True),
        (held("GP886", reason="busy", running=2), True),
        (held("GP886", reason="pinned"), False),
        (held("GP803", then="GPU-1", now=None), False),
        (held("GP808", then="a", now="b"), False),
        (NotReady([]), False),
    ],
    ids=lambda value: str(value)[:12],
)
def test_what_passes_is_waited_for(tmp_path: Path, error: Exception, waits: bool) -> None:
    waiting = Waiting(tmp_path / "q", [error, "placed"])
    if waits:
        assert waiting.run() == "placed"
        assert waiting.codes == ["GP890"]
    else:
        with pytest.raises(type(error)):
            waiting.run()


def test_others_that_came_first_go_first(tmp_path: Path) -> None:
    path = tmp_path / "q"
    waiting = Waiting(path, ["placed"])
    with Turn(path, "first", clock=waiting.time) as first:
        first.tell(looked=waiting.time(), fits=False)
        first.tell(looked=waiting.time(), fits=True)
        with pytest.raises(StillNoRoom) as over:
            waiting.run()
        assert "others that came earlier went first" in word(over.value.facts[0]).headline
        assert waiting.codes == ["GP891"]
        assert "first waits for longer" in word(waiting.events[1].fact).headline
        first.begin()
        assert Waiting(path, ["placed"]).run() == "placed"


def test_a_full_queue_is_told_at_once(tmp_path: Path, nothing: Plan) -> None:
    path = tmp_path / "q"
    others = [Waiting(path, ["placed"]).turn for _ in range(MOST_WAITING)]
    for one in others:
        one.tell(looked=1e9, fits=False)
    waiting = Waiting(path, [NothingFits(nothing)])
    with pytest.raises(QueueFull, match="busy"):
        waiting.run()
    assert waiting.time.paused == []


def test_room_that_was_taken_meanwhile_is_waited_for_again(tmp_path: Path, nothing: Plan) -> None:
    waiting = Waiting(tmp_path / "q", [NothingFits(nothing), "placed"])
    waiting.run()
    waiting.room.taken(held("GP805", then_bytes=2**30, now_bytes=0, claim_bytes=2**30))
    assert waiting.codes[-1] == "GP892"
    assert "GP805" in word(waiting.events[-1].fact).headline
    waiting.time.seconds += SECONDS
    last = held("GP805", then_bytes=2**30, now_bytes=0, claim_bytes=2**30)
    with pytest.raises(FleetChanged) as over:
        waiting.room.taken(last)
    assert over.value is last


def test_ctrl_c_leaves_the_queue(tmp_path: Path, nothing: Plan) -> None:
    path = tmp_path / "q"
    waiting = Waiting(path, [NothingFits(nothing)])

    def interrupted() -> None:
        assert "qwen3" in path.read_text()
        raise KeyboardInterrupt

    waiting.time.before = interrupted
    with pytest.raises(KeyboardInterrupt):
        waiting.run()
    assert "qwen3" not in path.read_text()


def test_what_is_missing_is_the_first_refusal(nothing: Plan) -> None:
    busy = NothingFits(made("Qwen/Qwen3-32B", FLEETS / "busy.json"))
    told = word(fact_of(**missing_of(busy), place=2, waiting=3))
    assert "63.88 GiB" in told.headline
    assert "by python of ada, pid 4711" in told.because[0], "who holds it"
    assert told.because[1] == "place 2 of 3 in the queue"
    again = read_fact(json.loads(json.dumps(plain(finding_document(fact_of(**missing_of(busy)))))))
    assert word(again).headline == told.headline, "the same words from its JSON"
    assert missing_of(NothingFits(replace(nothing, strategies=()))) == {"words": "no strategy fits"}
    assert "GP807" in word(fact_of(**missing_of(held("GP807", then="fits", now="no_fit")))).headline


def refusal(plan: Plan) -> Fact:
    return next(fact for one in plan.strategies for fact in one.facts if fact.severity is Severity.ERROR)


def fact_of(**figures: object) -> Fact:
    return Fact(code="GP890", severity=Severity.INFO, subject={"deployment": "qwen3"}, figures=figures)
