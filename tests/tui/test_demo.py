"""The demo's services: read, watched, planned, deployed, failed, taken back, stopped and restarted, without any host."""

import io
import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from gpuplan.cli.app import run as run_command
from gpuplan.deploying.reduce import reduce
from gpuplan.domain.deployment import Member, State
from gpuplan.domain.events import (
    At,
    Event,
    Failed,
    MemberSeen,
    Milestone,
    Phase,
    PhaseStarted,
    Remark,
    SpecDecided,
    Transfer,
    Undone,
)
from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.plan import Owner
from gpuplan.engine.startup_log import MilestoneKind
from gpuplan.errors import ExitCode, UsageError
from gpuplan.operations.host_locks import Locked
from gpuplan.operations.logs import LogChoice, Printed
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.stopped import NotReady
from gpuplan.planning.allocatable import account, ours_by_gpu, ours_on
from gpuplan.present.deployment_document import dry_run_document
from gpuplan.tui.background import BrokenOff
from gpuplan.tui.demo import DemoServices
from gpuplan.tui.demo_run import RECORDED
from gpuplan.tui.demo_world import RECORDINGS
from gpuplan.tui.services import Proposal, Question, Run, SourceKind
from tests.tui.demo_clock import BEGAN, MovedClock, demo, recommended, without_sockets


@pytest.fixture(autouse=True)
def no_sockets() -> Iterator[None]:
    with without_sockets():
        yield


LOGS = Path(__file__).parents[1] / "data" / "logs"
QWEN = Question(reference="Qwen/Qwen3-32B")
SHORT = Question(reference="Qwen/Qwen3-8B", hosts=("l40s-b",))
OVER_HOSTS = Question(reference="meta-llama/Meta-Llama-3.1-405B")


def proposed(services: DemoServices, question: Question, name: str | None = None) -> Proposal:
    plan, choice = recommended(services, question)
    return services.propose(plan, choice, name, None)


def deployed(
    services: DemoServices, question: Question = QWEN, name: str | None = None
) -> tuple[Run, list[At]]:
    """A deploy that has come to its end."""
    run = services.deploy(proposed(services, question, name))
    return run, list(run.events())


def holders(services: DemoServices) -> set[str]:
    """Deployments of ours that hold memory somewhere."""
    return {
        holding.name
        for host in services.world.fleet().hosts
        for gpu in host.gpus
        for holding in account(gpu, ours_on(gpu, ours_by_gpu(host)), host).held
        if holding.owner is Owner.OURS
    }


def of(events: Sequence[At], kind: type[Event]) -> list[Event]:
    return [at.event for at in events if isinstance(at.event, kind)]


def phases(events: Sequence[At]) -> list[Phase]:
    return [at.event.phase for at in events if isinstance(at.event, PhaseStarted)]


# ---------------------------------------------------------------------- the fleet


def test_hosts_answer_one_after_the_other_and_the_silent_one_last() -> None:
    services, told = demo(), list[Host]()
    fleet = services.read_fleet(told.append)
    assert services.source.kind is SourceKind.DEMO
    assert services.source.acts
    assert tuple(host.name for host in fleet.hosts) == services.expected()
    assert sorted(host.name for host in told) == sorted(services.expected())
    assert told[-1].name == "h100-e"
    assert fleet.taken_at == "2027-01-15T08:00:01Z"


def test_one_host_is_read_again() -> None:
    services, told = demo(), list[Host]()
    fleet = services.read_fleet(told.append, only=("rtx-a",))
    assert [host.name for host in told] == ["rtx-a"]
    assert len(fleet.hosts) == 12


def test_a_reading_is_broken_off() -> None:
    services, told = demo(), list[Host]()

    def hear(host: Host) -> None:
        told.append(host)
        services.cancel_reading()

    with pytest.raises(BrokenOff):
        services.read_fleet(hear)
    assert len(told) == 1


def watched(seed: int) -> list[dict[str, tuple[Gpu, ...]]]:
    clock, told = MovedClock(), list[dict[str, tuple[Gpu, ...]]]()
    services = DemoServices(clock=clock, seed=seed)
    clock.stop_after(4)
    services.watch(1.0, threading.Event(), lambda gpus: told.append(dict(gpus)))
    return told


def test_what_works_wobbles_and_the_same_seed_tells_the_same() -> None:
    told = watched(3)
    assert len(told) == 3
    assert told == watched(3)
    assert told != watched(4)
    busy = [gpus["h100-c"][0].utilization_percent for gpus in told]
    assert len(set(busy)) > 1
    assert all(0 <= (one or 0) <= 100 for one in busy)
    assert {gpus["h100-a"][0].utilization_percent for gpus in told} == {0}
    assert all(gpus["h100-a"][0].free_bytes == told[0]["h100-a"][0].free_bytes for gpus in told)
    assert "h100-e" not in told[0]


# ---------------------------------------------------------------------- plans and proposals


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (QWEN, ["Qwen/Qwen3-32B"]),
        (OVER_HOSTS, ["meta-llama/Meta-Llama-3.1-405B"]),
        (
            Question(
                reference="Qwen/Qwen3-8B",
                hosts=("rtx-a", "mixed-a"),
                serving=ServingOptions(context="16k", engine_args=("--max-num-seqs", "32")),
            ),
            [
                "Qwen/Qwen3-8B",
                "--host",
                "rtx-a",
                "--host",
                "mixed-a",
                "--context",
                "16k",
                "--",
                "--max-num-seqs",
                "32",
            ],
        ),
    ],
)
def test_what_it_proposes_is_what_a_dry_run_on_the_snapshot_says(
    question: Question, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "VLLM_API_KEY", "GPUPLAN_INVENTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", "/nonexistent/token")
    options = [
        *("--dry-run", "-o", "json", "-i", str(RECORDINGS / "demo-inventory.yaml")),
        *("--snapshot", str(RECORDINGS / "fleet.json")),
    ]
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert run_command(["deploy", words[0], *options, *words[1:]]) == 0
    proposal = proposed(demo(), question)
    told = json.loads(json.dumps(dry_run_document(proposal.spec, proposal.replaces)))
    assert told == json.loads(printed.getvalue())


def test_a_host_whose_docker_gives_no_gpus_is_refused_before_anything_is_touched() -> None:
    services = demo()
    plan = services.plan(Question(reference="Qwen/Qwen3-8B", hosts=("l40s-a",)), services.world.fleet())
    place = next((number, 0) for number, strategy in enumerate(plan.strategies) if strategy.candidates)
    with pytest.raises(NotReady) as caught:
        services.propose(plan, place, None, None)
    assert [fact.code for fact in caught.value.facts] == ["GP809", "GP626"]


def test_a_dry_run_is_what_would_be_proposed() -> None:
    services = demo()
    plan, choice = recommended(services, QWEN)
    spec = services.dry_run(plan, choice, services.world.fleet())
    assert spec == services.propose(plan, choice, None, None).spec


def test_a_secret_of_the_question_is_nowhere_to_be_read() -> None:
    services = demo()
    serving = ServingOptions(engine_args=("--api-key", "sk-very-secret-word"))
    proposal = proposed(services, Question(reference="Qwen/Qwen3-32B", serving=serving))
    assert "sk-very-secret-word" not in repr(proposal.spec)
    assert "VLLM_API_KEY" in {name for one in proposal.spec.containers for name in one.secrets}


def test_the_environment_gives_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert not any(one.secrets for one in proposed(demo(), QWEN).spec.containers)


# ---------------------------------------------------------------------- a deploy that serves


def test_its_events_are_those_of_a_real_one_and_make_a_running_deployment() -> None:
    services = demo()
    run, events = deployed(services)
    assert phases(events) == [
        Phase.LOCK,
        Phase.COMPARE,
        Phase.IMAGE,
        Phase.CREATE,
        Phase.START,
        Phase.LOAD,
        Phase.ANSWER,
    ]
    deployment = reduce(events)
    assert (deployment.name, deployment.state) == ("qwen3-32b", State.RUNNING)
    assert [member.health for member in deployment.members] == ["healthy"]
    kinds = [event.kind for event in of(events, Milestone) if isinstance(event, Milestone)]
    assert kinds[0] == MilestoneKind.PROCESS.value
    assert kinds[-1] == MilestoneKind.SERVING.value
    places = [MilestoneKind(kind).place for kind in kinds]
    assert places == sorted(places)
    assert not run.alive
    outcome = run.outcome()
    assert outcome is not None
    assert outcome.exit_code == ExitCode.DONE
    assert outcome.message == RECORDED


def test_its_figures_are_the_plans_own_as_the_engine_rounds_them() -> None:
    run, _ = deployed(demo())
    outcome = run.outcome()
    assert outcome is not None
    assert outcome.deployment is not None
    actual, predicted = outcome.deployment.actual, outcome.deployment.predicted
    assert actual is not None
    assert actual.kv_cache_tokens == predicted.kv_cache_tokens
    assert actual.weights_bytes == pytest.approx(predicted.weights_bytes, abs=6 * 2**20)
    assert actual.kv_cache_bytes == pytest.approx(predicted.kv_cache_bytes, abs=6 * 2**20)
    assert actual.max_concurrency == pytest.approx(predicted.max_concurrency, abs=0.006)
    assert [used for _, _, used in actual.used_bytes] == [pytest.approx(predicted.per_gpu_bytes, abs=2**20)]


def test_two_demos_of_one_seed_tell_the_same() -> None:
    assert deployed(demo(5))[1] == deployed(demo(5))[1]


def test_afterwards_it_is_deployed_and_holds_its_memory() -> None:
    services = demo()
    before = services.world.host("h100-a").gpus[0]
    deployed(services)
    after = services.world.host("h100-a").gpus[0]
    assert holders(services) == {"llama-70b", "qwen3-32b"}
    assert (before.free_bytes or 0) - (after.free_bytes or 0) > 70 * 10**9
    seen = {one.deployment.name: one.deployment for one in services.deployments().deployments}
    found = seen["qwen3-32b"]
    assert (found.state, found.endpoint) == (State.RUNNING, "http://192.0.2.11:40000")
    assert found.load is not None
    assert found.actual is not None
    assert found.members[0].gpu_indexes == (0,)
    assert 40000 in services.world.host("h100-a").facts.listening_ports
    assert [host.name for host in services.deployments().silent] == ["h100-e"]


def test_the_load_moves_with_the_time() -> None:
    services, seen = demo(), set()
    for _ in range(12):
        services.clock.wait(10.0, threading.Event())
        seen.add(services.deployments("llama-70b").deployments[0].deployment.load)
    assert len(seen) > 6


def test_over_two_hosts_members_reach_each_other_first_and_both_get_the_weights() -> None:
    services = demo()
    _, events = deployed(services, OVER_HOSTS)
    assert Phase.PREFLIGHT in phases(events)
    weights = [event for event in of(events, Transfer) if isinstance(event, Transfer)]
    assert {(one.phase, one.host) for one in weights} == {
        (Phase.WEIGHTS, "h100-a"),
        (Phase.WEIGHTS, "h100-b"),
    }
    assert weights[-1].done_bytes == weights[-1].total_bytes
    assert (weights[-1].total_bytes or 0) > 750 * 10**9
    deployment = reduce(events)
    assert (deployment.state, [member.role.value for member in deployment.members]) == (
        State.RUNNING,
        ["leader", "follower"],
    )
    services.stop(deployment.name, lambda _: True, lambda _: None)
    assert Phase.WEIGHTS not in phases(deployed(services, OVER_HOSTS)[1])


def test_an_image_is_brought_once() -> None:
    services = demo()
    question = Question(reference="Qwen/Qwen3-8B", hosts=("mixed-a",))
    _, events = deployed(services, question)
    assert Phase.IMAGE in {event.phase for event in of(events, Transfer) if isinstance(event, Transfer)}
    services.stop("qwen3-8b", lambda _: True, lambda _: None)
    _, events = deployed(services, question)
    assert not of(events, Transfer)


def test_what_the_engines_print_is_worded_as_recorded_logs_are() -> None:
    def form(text: str) -> str:
        text = re.sub(r"^\(\w+ pid=\d+\) ", "", text).split("Completed |")[0]
        text = re.sub(r"INFO \d\d-\d\d \d\d:\d\d:\d\d \[[\w.]+:\d+\] ", "", text)
        text = re.sub(r"load model \S+|version \S+$|http\S+|'model.*|tcp\S+", "…", text)
        return re.sub(r"[\d,.]+", "#", text).strip()

    recorded = {form(line) for path in LOGS.glob("*.log") for line in path.read_text().splitlines()}
    services = demo()
    deployed(services)
    (container,) = services.world.containers("qwen3-32b")
    ours = [form(line.text) for line in services.world.lines(container.id)]
    strange = [text for text in ours if text not in recorded and "non-default args" not in text]
    assert strange == []


# ---------------------------------------------------------------------- bad ends


def test_on_the_host_that_fails_it_is_diagnosed_and_taken_back() -> None:
    services = demo()
    run, events = deployed(services, SHORT)
    made = {
        (event.member.host, event.member.container)
        for event in of(events, MemberSeen)
        if isinstance(event, MemberSeen)
    }
    undone = {(event.host, event.container) for event in of(events, Undone) if isinstance(event, Undone)}
    assert undone == made
    last = events[-1].event
    assert isinstance(last, Failed)
    assert [fact.code for fact in last.facts[:2]] == ["GP735", "GP829"]
    assert last.facts[1].figures["fits"]
    assert reduce(events).state is State.ERROR
    outcome = run.outcome()
    assert outcome is not None
    assert outcome.exit_code == ExitCode.DEPLOYMENT_FAILED
    assert "Free memory on device" in outcome.message
    assert "hint: " in outcome.message
    assert holders(services) == {"llama-70b"}
    assert [one.deployment.name for one in services.deployments().deployments] == ["llama-70b"]


class Held(MovedClock):
    """Time stands still once `at` is reached, until somebody breaks the wait off."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = at
        self.reached = threading.Event()

    def wait(self, length: float, stop: threading.Event) -> bool:
        if self.now() + length > BEGAN + self.at and not self.reached.is_set():
            self.reached.set()
            return stop.wait(20)
        return super().wait(length, stop)


def test_taken_back_half_way_nothing_is_left() -> None:
    clock = Held(8.0)
    services = DemoServices(clock=clock)
    run = services.deploy(proposed(services, QWEN))
    assert clock.reached.wait(20)
    assert run.alive
    assert services.runs() == (run,)
    assert "qwen3-32b" in {one.deployment.name for one in services.deployments().deployments}
    run.take_back()
    run.take_back()
    events = list(run.events())
    last = events[-1].event
    assert isinstance(last, Failed)
    assert [fact.code for fact in last.facts] == ["GP818"]
    assert Phase.UNDO in phases(events)
    outcome = run.outcome()
    assert outcome is not None
    assert outcome.exit_code == ExitCode.INTERRUPTED
    assert holders(services) == {"llama-70b"}
    run.acknowledge()
    assert services.runs() == ()


def test_while_it_is_deployed_nobody_else_works_on_its_hosts() -> None:
    clock = Held(8.0)
    services = DemoServices(clock=clock)
    run = services.deploy(proposed(services, QWEN))
    assert clock.reached.wait(20)
    second = services.deploy(proposed(services, QWEN, "other"))
    assert len(list(second.events())) > 0
    outcome = second.outcome()
    assert outcome is not None
    assert "is locked" in outcome.message
    with pytest.raises(Locked):
        services.stop("qwen3-32b", lambda _: True, lambda _: None)
    run.take_back()
    list(run.events())


def test_what_is_replaced_runs_again_when_the_new_one_is_taken_back() -> None:
    clock = Held(6.0)
    services = DemoServices(clock=clock)
    question = Question(
        reference="meta-llama/Llama-3.3-70B-Instruct",
        serving=ServingOptions(gpus=("h200-a:0,1",), context="16k"),
    )
    proposal = proposed(services, question, "llama-70b")
    assert [member.container for member in proposal.replaces] == ["gpuplan-llama-70b-s0n0"]
    run = services.deploy(proposal)
    assert clock.reached.wait(20)
    run.take_back()
    events = list(run.events())
    assert Phase.REPLACE in phases(events)
    assert [event.what for event in of(events, Undone) if isinstance(event, Undone)][-1] == "restored"
    found = services.deployments("llama-70b").deployments[0].deployment
    assert (found.state, found.predicted.max_model_len) == (State.RUNNING, 32768)


# ---------------------------------------------------------------------- replaced, the same, named


def test_another_plan_under_the_name_replaces_what_runs() -> None:
    services = demo()
    question = Question(
        reference="meta-llama/Llama-3.3-70B-Instruct",
        serving=ServingOptions(gpus=("h200-a:0,1",), context="16k"),
    )
    _, events = deployed(services, question, "llama-70b")
    assert phases(events)[-1] is Phase.CLEAN
    found = services.deployments("llama-70b").deployments[0].deployment
    assert (found.state, found.predicted.max_model_len, len(found.members)) == (State.RUNNING, 16000, 1)


def test_the_same_again_changes_nothing() -> None:
    services = demo()
    question = Question(reference="Qwen/Qwen3-32B", serving=ServingOptions(gpus=("h100-a:0",), context="16k"))
    first = deployed(services, question)[1]
    second = deployed(services, question)[1]
    assert Phase.CREATE in phases(first)
    assert Phase.CREATE not in phases(second)
    assert [event.fact.code for event in of(second, Remark) if isinstance(event, Remark)] == ["GP811"]
    assert reduce(second).state is State.RUNNING


def test_a_name_that_serves_another_model_is_left_alone() -> None:
    services = demo()
    deployed(services, Question(reference="Qwen/Qwen3-8B", hosts=("rtx-a",)), "qwen3-32b")
    assert proposed(services, QWEN).spec.name == "qwen3-32b-2"


# ---------------------------------------------------------------------- logs


def heard(services: DemoServices, name: str, choice: LogChoice, stop: threading.Event) -> list[Printed]:
    found = list[Printed]()

    def begin(_members: Sequence[Member]) -> object:
        return found.append

    services.logs(name, choice, begin, lambda _: None, stop)  # type: ignore[arg-type]  # append is a sink
    return found


def test_a_log_replays_the_start_and_goes_on_with_requests() -> None:
    clock = MovedClock()
    services = DemoServices(clock=clock)
    deployed(services)
    printed = heard(services, "qwen3-32b", LogChoice(), threading.Event())
    assert "version 0.33.0" in printed[0].text
    assert "Application startup complete." in printed[-1].text
    clock.stop_after(100)
    followed = heard(services, "qwen3-32b", LogChoice(follow=True), threading.Event())
    fresh = followed[len(printed) :]
    assert followed[: len(printed)] == printed
    assert any("POST /v1/chat/completions" in one.text for one in fresh)
    assert any("GPU KV cache usage" in one.text for one in fresh)
    assert [one.at for one in fresh] == sorted(one.at for one in fresh)


def test_a_log_is_narrowed_to_lines_and_members() -> None:
    services = demo()
    deployed(services, OVER_HOSTS)
    name = "meta-llama-3-1-405b"
    tail = heard(services, name, LogChoice(tail=2, members=("follower",)), threading.Event())
    assert [one.member.host for one in tail] == ["h100-b", "h100-b"]
    with pytest.raises(UsageError):
        heard(services, name, LogChoice(members=("nobody",)), threading.Event())


# ---------------------------------------------------------------------- the end


def freed(fleet: Fleet) -> dict[str, list[int | None]]:
    return {host.name: [gpu.free_bytes for gpu in host.gpus] for host in fleet.hosts}


def test_a_stop_asks_first_and_gives_the_memory_back() -> None:
    services = demo()
    before = freed(services.world.fleet())
    deployed(services)
    refused = services.stop("qwen3-32b", lambda _: False, lambda _: None)
    assert not refused.asked
    assert freed(services.world.fleet()) != before
    events = list[Event]()
    stopped = services.stop("qwen3-32b", lambda intended: bool(intended.containers), events.append)
    assert stopped.complete
    assert stopped.removed == (("h100-a", "gpuplan-qwen3-32b-s0n0"),)
    assert any(isinstance(event, Undone) for event in events)
    assert freed(services.world.fleet()) == before
    with pytest.raises(UsageError) as caught:
        services.deployments("qwen3-32b")
    assert "there is no deployment qwen3-32b" in caught.value.message


def test_a_restart_ends_and_starts_it_again() -> None:
    services, events = demo(), list[Event]()
    services.restart("llama-70b", events.append)
    begun = [event.phase for event in events if isinstance(event, PhaseStarted)]
    assert begun[-2:] == [Phase.START, Phase.LOAD]
    assert any(isinstance(event, Milestone) for event in events)
    found = services.deployments("llama-70b").deployments[0].deployment
    assert found.state is State.RUNNING
    assert (found.uptime_seconds or 0) < 60
    assert SpecDecided not in {type(event) for event in events}


def test_looks_see_what_runs() -> None:
    looks = demo().watch_deployments()
    assert [one.deployment.name for one in looks.look(dial=True).deployments] == ["llama-70b"]
    looks.close()
