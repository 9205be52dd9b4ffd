"""The app on the demo: it says so, reads the recorded hosts and shows what is deployed."""

from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.demo import DemoServices
from gpuplan.tui.services import Question
from tests.tui.demo_clock import FastClock, recommended
from tests.tui.screen import shown


async def test_the_app_opens_on_the_recorded_fleet_and_says_so() -> None:
    services = DemoServices(clock=FastClock())
    app = GpuplanApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        while not app.state.fleet.hosts or app.state.fleet.hosts[-1].failure is None:
            await pilot.pause(0.02)
        text = shown(app)
        assert "DEMO" in text
        assert "recorded fleet" in text
        assert "h100-a" in text


async def test_a_deploy_of_the_demo_ends_in_time_that_passes() -> None:
    services = DemoServices(clock=FastClock(speed=200))
    plan, choice = recommended(services, Question(reference="Qwen/Qwen3-32B"))
    run = services.deploy(services.propose(plan, choice, None, None))
    assert run.alive
    assert len(list(run.events())) > 20
    outcome = run.outcome()
    assert outcome is not None
    assert outcome.exit_code == 0
