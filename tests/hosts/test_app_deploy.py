"""The app's own way to deploy, on real hosts: proposed, begun as a process, followed, broken off, picked up by another."""

from pathlib import Path
from queue import Queue
from threading import Event as Flag
from threading import Thread

import pytest

from gpuplan.cli.reaching import probe_options
from gpuplan.domain.deployment import State
from gpuplan.domain.events import At, Failed, MemberSeen, Phase, PhaseStarted, SpecDecided, Undone
from gpuplan.domain.plan import StrategyName
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.logs import LogChoice, Printed
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.probe import ProbeOptions
from gpuplan.operations.stopped import FleetChanged
from gpuplan.present.event_words import event_text
from gpuplan.tui.live import LiveServices
from gpuplan.tui.services import Proposal, Question
from tests.hosts.deploying import Site, lay_site
from tests.hosts.fleet import Fleet

API_KEY = "sk-of-the-app-0123456789"


@pytest.fixture
def site(deploy_fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = lay_site(deploy_fleet, tmp_path)
    for name, value in site.environment().items():
        monkeypatch.setenv(name, value)
    return site


def services_of(site: Site) -> LiveServices:
    options = FleetOptions(environ=site.environment(), cwd=Path.cwd(), inventory=site.inventory, reach=reach)
    return LiveServices(options, reach)


def reach() -> ProbeOptions:
    return probe_options(None, None)


def proposal(services: LiveServices, site: Site, *words: str, name: str | None = None) -> Proposal:
    """The first candidate of one GPU, planned and looked at again."""
    fleet = services.read_fleet(lambda _host: None)
    question = Question(reference=str(site.model), serving=ServingOptions(engine_args=words))
    plan = services.plan(question, fleet)
    number = next(n for n, one in enumerate(plan.strategies) if one.strategy is StrategyName.SINGLE_GPU)
    return services.propose(plan, (number, 0), name, None)


def phases(events: list[At]) -> set[Phase]:
    return {at.event.phase for at in events if isinstance(at.event, PhaseStarted)}


def test_a_deploy_of_the_app_serves_and_nothing_secret_is_kept(site: Site) -> None:
    services = services_of(site)
    wanted = proposal(services, site, "--api-key", API_KEY, name="app")
    run = services.deploy(wanted)
    assert [one.id for one in services.runs()] == [run.id]
    events = list(run.events())
    outcome = run.outcome()
    assert outcome is not None
    assert outcome.exit_code == 0, outcome.message
    assert outcome.deployment is not None
    assert outcome.deployment.state is State.RUNNING
    assert outcome.deployment.endpoint == wanted.spec.servers[0].endpoint
    assert phases(events) >= {Phase.LOCK, Phase.START, Phase.ANSWER}
    assert any(isinstance(at.event, SpecDecided) for at in events)
    assert all(event_text(at) is None or str(event_text(at)).isprintable() for at in events)
    kept = [path for path in (site.directory / "state").rglob("*") if path.is_file()]
    assert kept
    assert all(API_KEY.encode() not in path.read_bytes() for path in kept)
    run.acknowledge()
    assert services_of(site).runs() == ()

    _logs_are_read_until_nobody_wants_them(services)
    site.run("stop", "app", "--yes")


def _logs_are_read_until_nobody_wants_them(services: LiveServices) -> None:
    heard: Queue[Printed] = Queue()
    stop = Flag()
    reader = Thread(
        target=services.logs,
        args=("app", LogChoice(follow=True), lambda _members: heard.put, lambda _text: None, stop),
        daemon=True,
    )
    reader.start()
    assert heard.get(timeout=60).text
    stop.set()
    reader.join(5)
    assert not reader.is_alive()


def test_another_app_picks_it_up_and_takes_it_back(site: Site) -> None:
    for host in site.fleet:
        site.faults(host.name, {"all": {"hang_after": "weights"}})
    services = services_of(site)
    begun = services.deploy(proposal(services, site, name="app"))
    for at in begun.events():
        if isinstance(at.event, MemberSeen) and at.event.member.state == "running":
            break
    (found,) = services_of(site).runs()
    assert (found.id, found.alive) == (begun.id, True)
    assert found.outcome() is None
    found.take_back()
    events = list(found.events())
    assert any(isinstance(at.event, Undone) and at.event.what == "removed" for at in events)
    assert isinstance(events[-1].event, Failed)
    outcome = found.outcome()
    assert outcome is not None
    assert outcome.exit_code == 130
    assert site.all_ours() == []


def test_a_fleet_that_changed_is_told_before_anything_starts(site: Site) -> None:
    services = services_of(site)
    fleet = services.read_fleet(lambda _host: None)
    plan = services.plan(Question(reference=str(site.model)), fleet)
    number = next(n for n, one in enumerate(plan.strategies) if one.strategy is StrategyName.SINGLE_GPU)
    placed = plan.strategies[number].candidates[0].placement[0]
    site.fleet.inventory(
        site.inventory, entries={placed.host: {"exclude_gpus": [gpu.index for gpu in placed.gpus]}}
    )
    with pytest.raises(FleetChanged):
        services.propose(plan, (number, 0), None, None)
    assert site.all_ours() == []
