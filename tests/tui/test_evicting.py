"""A candidate that stops other deployments: the dialog names each, and the way back has the focus (S4.6)."""

from dataclasses import replace

from gpuplan.domain.events import Phase, PhaseStarted
from gpuplan.domain.plan import Eviction, Plan
from gpuplan.operations.plan import ServingOptions
from gpuplan.tui.screens.deploy import DeployScreen
from gpuplan.tui.services import Proposal, Question
from tests.tui.demo_clock import demo
from tests.tui.deploy_apps import app_of, propose, until
from tests.tui.deploys import SERVES, DeployServices
from tests.tui.screen import shown

EVICTION = Eviction(deployment="[llama]", gpus=(("h2", 4, 9),), running_requests=2, keep_alive_seconds=600)


class Evicting(DeployServices):
    def propose(
        self, plan: Plan, choice: tuple[int, int], name: str | None, keep_alive_seconds: int | None
    ) -> Proposal:
        return replace(super().propose(plan, choice, name, keep_alive_seconds), evicts=(EVICTION,))


async def test_who_is_stopped_is_named_and_cancel_is_the_default() -> None:
    services = Evicting()
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await propose(pilot, app)
        text = " ".join(shown(app).split())
        assert "stops [llama] on h2:4: 2 requests in flight, keep-alive 10 min" in text
        assert "stops 1 other deployment" in text
        assert "Stop and deploy" in text
        assert app.focused is app.screen.query_one("#cancel")
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        assert services.deployed == []
        await propose(pilot, app)
        await pilot.press("right", "enter")
        await until(pilot, lambda: isinstance(app.screen, DeployScreen))
        assert services.deployed[0].evicts == (EVICTION,)
    services.run.end(SERVES)


def test_in_the_demo_the_other_one_is_stopped_and_gone() -> None:
    services = demo()
    serving = ServingOptions(gpus=("h200-a:0,1",), strategies=("evict",), context="16k")
    question = Question(reference="Qwen/Qwen3-32B", serving=serving)
    plan = services.plan(question, services.read_fleet(lambda _host: None))
    strategy = next(number for number, one in enumerate(plan.strategies) if one.strategy == "evict")
    proposal = services.propose(plan, (strategy, 0), "room", None)
    assert [one.deployment for one in proposal.evicts] == ["llama-70b"]
    assert [one.container for one in proposal.evicted] == ["gpuplan-llama-70b-s0n0"]
    run = services.deploy(proposal)
    events = [at.event for at in run.events()]
    assert any(isinstance(one, PhaseStarted) and one.phase is Phase.REPLACE for one in events)
    outcome = run.outcome()
    assert outcome is not None
    assert outcome.exit_code == 0
    assert services.world.containers("llama-70b") == ()
    assert services.world.containers("room") != ()
