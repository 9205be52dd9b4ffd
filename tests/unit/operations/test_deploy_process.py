"""A deploy as a process: it writes, is followed, broken off, picked up by another, and found after it has ended."""

import json
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuplan.domain.deployment import Deployment, State
from gpuplan.domain.events import At, Event, Failed, Phase, PhaseStarted, StateChanged
from gpuplan.domain.fact import Fact, Severity
from gpuplan.operations import deploy_process
from gpuplan.operations.deploy_process import DeployProcess, deploy_command, find, new_directory, start
from gpuplan.operations.process_identity import identity_of
from gpuplan.present.deployment_document import deployment_document
from gpuplan.present.event_words import event_document
from gpuplan.sources import plan_json

CHILD = """
import json, os, signal, sys, time
lines = json.loads(sys.argv[1])
stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append(1))
def say(line):
    sys.stdout.write(line); sys.stdout.flush()
for line in lines["first"]:
    say(line + "\\n")
if lines["half"]:
    say(lines["half"][:20]); time.sleep(0.3); say(lines["half"][20:] + "\\n")
deadline = time.monotonic() + lines["lasts"]
while time.monotonic() < deadline and not stopped:
    time.sleep(0.02)
for line in lines["interrupted" if stopped else "last"]:
    say(line + "\\n")
sys.stderr.write(lines["error"]); sys.stderr.flush()
if lines["cut"]:
    say(lines["cut"])
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(130 if stopped else lines["code"])
"""


def line(event: Event) -> str:
    return json.dumps(event_document(At(at=1.0, event=event)))


LOCK = PhaseStarted(phase=Phase.LOCK, awaits="h1")
LOAD = PhaseStarted(phase=Phase.LOAD, awaits="the engine to load")
TAKEN_BACK = Failed(
    phase=Phase.LOAD,
    facts=(
        Fact(code="GP818", severity=Severity.ERROR, subject={"deployment": "q"}, figures={"phase": "load"}),
    ),
)
SERVES = Deployment(name="q", state=State.RUNNING, endpoint="http://h1:40000")

Begin = Callable[..., DeployProcess]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    begun: list[DeployProcess] = []

    def make(
        *first: Event,
        half: str = "",
        last: tuple[str, ...] = (),
        interrupted: tuple[str, ...] = (),
        lasts: float = 0.0,
        error: str = "",
        cut: str = "",
        code: int = 0,
    ) -> DeployProcess:
        what = {
            "first": [line(event) for event in first],
            "half": half,
            "last": last,
            "interrupted": interrupted,
            "lasts": lasts,
            "error": error,
            "cut": cut,
            "code": code,
        }
        directory = new_directory(tmp_path)
        command = [sys.executable, "-c", CHILD, json.dumps(what)]
        run = start(directory, command, name="q", inventory="/i.yaml", cwd=tmp_path, environ=dict(os.environ))
        begun.append(run)
        return run

    yield make
    for run in begun:
        if run.alive:
            os.killpg(run._about.pid, signal.SIGKILL)
        for _ in run.events():
            pass


def phases(events: Iterator[At]) -> list[Phase]:
    return [at.event.phase for at in events if isinstance(at.event, PhaseStarted)]


def last_line() -> str:
    return json.dumps(deployment_document(SERVES))


def test_events_come_until_it_ends(begin: Begin) -> None:
    run = begin(LOCK, half=line(LOAD), last=(last_line(),))
    assert phases(run.events()) == [Phase.LOCK, Phase.LOAD]
    assert not run.alive
    outcome = run.outcome()
    assert outcome is not None
    assert (outcome.exit_code, outcome.deployment, outcome.message) == (0, SERVES, "")


def test_it_is_not_over_while_it_lives(begin: Begin) -> None:
    run = begin(LOCK, lasts=60.0)
    assert next(run.events()).event == LOCK
    assert run.alive
    assert run.outcome() is None


def test_breaking_off_takes_back(begin: Begin) -> None:
    run = begin(LOCK, lasts=60.0, interrupted=(line(TAKEN_BACK),))
    events = run.events()
    next(events)
    run.take_back()
    assert [type(at.event) for at in events] == [Failed]
    outcome = run.outcome()
    assert outcome is not None
    assert outcome.exit_code == 130
    run.take_back()


def test_another_picks_it_up(begin: Begin, tmp_path: Path) -> None:
    run = begin(LOCK, lasts=60.0, interrupted=(line(TAKEN_BACK),))
    next(run.events())
    deploy_process._CHILDREN.pop(run._about.pid).returncode = 0  # nobody here is its parent any more
    (found,) = find(tmp_path)
    assert (found.id, found.name, found.alive, found.inventory) == (run.id, "q", True, "/i.yaml")
    events = found.events()
    assert next(events).event == LOCK
    found.take_back()
    assert [type(at.event) for at in events] == [Failed]
    outcome = found.outcome()
    assert outcome is not None
    assert outcome.exit_code == 130
    os.waitpid(run._about.pid, 0)


def test_an_end_nobody_saw_is_found_until_it_is_seen(begin: Begin, tmp_path: Path) -> None:
    run = begin(LOCK, error="error: q was not deployed\nhint: look", code=5)
    list(run.events())
    (found,) = find(tmp_path)
    outcome = found.outcome()
    assert outcome is not None
    assert (outcome.exit_code, outcome.message) == (5, "error: q was not deployed\nhint: look")
    found.acknowledge()
    assert find(tmp_path) == ()


def test_what_lives_is_not_acknowledged(begin: Begin, tmp_path: Path) -> None:
    run = begin(LOCK, lasts=60.0)
    run.acknowledge()
    assert [one.id for one in find(tmp_path)] == [run.id]


def test_a_killed_process_says_so(begin: Begin) -> None:
    run = begin(LOCK, cut=line(LOAD)[:30])
    assert phases(run.events()) == [Phase.LOCK]
    outcome = run.outcome()
    assert outcome is not None
    assert outcome.exit_code == -signal.SIGKILL
    assert "killed (SIGKILL)" in outcome.message


@pytest.mark.parametrize(
    ("lines", "error", "code"),
    [
        ([last_line()], "", 0),
        ([line(StateChanged(state=State.RUNNING))], "", 0),
        ([line(TAKEN_BACK)], "", 130),
        ([line(Failed(phase=Phase.LOAD, facts=()))], "error: x", 5),
        ([line(LOCK)], "error: the fleet changed since the plan: h1 is gone", 6),
        ([line(LOCK)], "", 1),
    ],
)
def test_the_end_of_a_process_nobody_waited_for(
    tmp_path: Path, lines: list[str], error: str, code: int
) -> None:
    directory = new_directory(tmp_path)
    (directory / "events.jsonl").write_text("\n".join(lines))
    (directory / "stderr.txt").write_text(error)
    about = {"name": "q", "pid": os.getpid(), "process": "long ago", "inventory": "", "started_at": ""}
    (directory / "run.json").write_text(json.dumps({**about, "exit_code": None}))
    (run,) = find(tmp_path)
    assert not run.alive, "the number belongs to another process by now"
    outcome = run.outcome()
    assert outcome is not None
    assert outcome.exit_code == code
    assert bool(outcome.message) == (code != 0)


def test_only_its_owner_can_read_it(begin: Begin) -> None:
    run = begin(LOCK)
    list(run.events())
    deploy_process.write_private(run.directory / "plan.json", "{}")
    assert stat.S_IMODE(run.directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in run.directory.iterdir()} == {0o600}


def test_what_is_no_run_is_left_out(tmp_path: Path) -> None:
    assert find(tmp_path) == ()
    (new_directory(tmp_path) / "run.json").write_text("{")
    new_directory(tmp_path)
    assert find(tmp_path) == ()


def test_old_ones_are_forgotten(tmp_path: Path) -> None:
    for _ in range(deploy_process.KEPT + 3):
        (new_directory(tmp_path) / "seen").touch()
    kept = new_directory(tmp_path)
    assert kept.exists()
    assert len(list((tmp_path / "runs").iterdir())) == deploy_process.KEPT + 1


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    with pytest.raises(deploy_process.CannotStart, match="runs"):
        new_directory(tmp_path)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(deploy_process.CannotStart):
        start(new_directory(tmp_path), ["/nowhere"], name="q", inventory="", cwd=tmp_path, environ={})


def test_the_command_is_the_command_lines(tmp_path: Path) -> None:
    words = deploy_command(
        tmp_path / "plan.json",
        name="q",
        inventory="inventory.yaml",
        keep_alive_seconds=60,
        host_key="strict",
        jobs=4,
    )
    assert words[1:4] == ("-m", "gpuplan", "deploy")
    assert str(Path.cwd() / "inventory.yaml") in words
    assert words[-6:] == ("--keep-alive", "60", "--host-key", "strict", "--jobs", "4")


def test_gpuplan_itself_is_started_from_anywhere(tmp_path: Path) -> None:
    """A plan that is none: it says so and exits 2, so every word of the command was understood."""
    directory = new_directory(tmp_path)
    plan = directory / "plan.json"
    deploy_process.write_private(plan, '{"schema_version": 1}')
    assert plan_json.is_plan(plan)
    root = Path(deploy_process.__file__).parents[2]
    command = deploy_command(plan, name="q", inventory=root / "inventory.example.yaml", keep_alive_seconds=60)
    environ = {**os.environ, "PYTHONPATH": str(root)}
    run = start(directory, command, name="q", inventory="", cwd=directory, environ=environ)
    assert list(run.events()) == []
    outcome = run.outcome()
    assert outcome is not None
    assert outcome.exit_code == 2
    assert "plan.json" in outcome.message


def test_an_identity_is_of_a_living_process() -> None:
    assert identity_of(os.getpid())
    assert identity_of(os.getpid()) == identity_of(os.getpid())
    assert identity_of(2**22 + 1) is None
