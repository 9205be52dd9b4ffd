"""Pictures of every screen on the demo: what a person sees after these keys, always the same."""

import pytest

from tests.tui.pictures import assert_picture
from tests.tui.stage import Stage, deployed, planned, staged

WIDE, MIDDLE, SMALL = (200, 60), (120, 40), (80, 24)


async def _taken(stage: Stage, name: str, size: tuple[int, int] | None = None) -> None:
    """A picture, of that size if another one is meant."""
    if size is not None:
        await stage.resize(*size)
    width, height = stage.app.size
    await stage.rest()
    assert_picture(stage.app, f"{name}-{width}x{height}")


# ---------------------------------------------------------------------- fleet


async def test_the_fleet_in_three_sizes() -> None:
    async with staged(WIDE) as stage:
        await _taken(stage, "fleet")
        await _taken(stage, "fleet", MIDDLE)
        await _taken(stage, "fleet", SMALL)


@pytest.mark.parametrize(("name", "size"), [("light", MIDDLE), ("contrast", SMALL)])
async def test_the_fleet_in_other_themes(name: str, size: tuple[int, int]) -> None:
    async with staged(size, theme=f"gpuplan-{name}") as stage:
        await stage.press("end")
        await _taken(stage, f"fleet-{name}")


async def test_the_fleet_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with staged(SMALL) as stage:
        await stage.press("c", "down", "down", "right", "down")
        await _taken(stage, "fleet-no-color")


async def test_a_filtered_fleet_and_its_hosts() -> None:
    async with staged(SMALL) as stage:
        await stage.press("slash")
        await stage.type("h100-e")
        await stage.press("enter", "enter")
        await _taken(stage, "host-failed")
        await stage.press("escape", "slash", "ctrl+u")
        await stage.type("free>60")
        await _taken(stage, "fleet-filtered")
        await stage.press("ctrl+u")
        await stage.type("h100-c")
        await stage.press("enter", "enter")
        await _taken(stage, "host-busy", MIDDLE)


# ---------------------------------------------------------------------- plan


async def test_the_models() -> None:
    async with staged(SMALL) as stage:
        await stage.press("2", "o")
        await stage.type("qwen3 32b")
        await _taken(stage, "models")


async def test_a_plan_in_three_sizes() -> None:
    async with planned(WIDE) as stage:
        await _taken(stage, "plan")
        await _taken(stage, "plan", MIDDLE)
        await _taken(stage, "plan", SMALL)


async def test_a_plan_in_light() -> None:
    async with planned(MIDDLE, theme="gpuplan-light", context="40960", concurrency="8") as stage:
        await stage.press("end", "up")
        await _taken(stage, "plan-light")


async def test_a_plan_with_refusals_and_remedies() -> None:
    async with planned(MIDDLE, context="40960", concurrency="8") as stage:
        await stage.press("home", "down")
        await _taken(stage, "plan-refused")
        await _taken(stage, "plan-refused", SMALL)
        await stage.press("a")
        await _taken(stage, "remedies")


async def test_a_wrong_knob() -> None:
    async with planned(SMALL) as stage:
        await stage.press("e")
        await stage.type("many")
        await stage.press("enter")
        await stage.until("--context")
        await _taken(stage, "knob-error")


async def test_a_term_and_its_formula() -> None:
    async with planned(MIDDLE) as stage:
        await stage.press("enter")
        await stage.go_to("KV cache   ")
        await stage.press("enter")
        await stage.go_to("headroom")
        await _taken(stage, "term")


async def test_two_candidates_compared() -> None:
    async with planned(MIDDLE) as stage:
        await stage.press("home", "down", "equals_sign", "down", "equals_sign")
        await _taken(stage, "compare")


# ---------------------------------------------------------------------- deploy


async def test_a_deploy_from_the_question_to_its_end() -> None:
    async with planned(SMALL) as stage:
        await stage.press("d")
        await stage.until("Cancel", "Deploy")
        await _taken(stage, "confirm")
        await stage.press("right", "enter")
        await stage.until("lock")
        await stage.pass_time(12.0)
        await _taken(stage, "deploying")
        await _taken(stage, "deploying", MIDDLE)
        await stage.press("q")
        await _taken(stage, "quit")
        await stage.press("escape")
        await stage.pass_time(20.0)
        await stage.until("running")
        await _taken(stage, "deployed")


async def test_an_overcommit_is_typed() -> None:
    async with staged(SMALL) as stage:
        await stage.press("slash")
        await stage.type("h100-c")
        await stage.press("enter", "home", "down", "m", "2", "o")
        await stage.type("Qwen/Qwen3-32B")
        await stage.press("enter")
        await stage.until("overcommit h100-c:0")
        await _taken(stage, "plan-overcommit")
        await stage.press("home", "d")
        await stage.until("Cancel", "Deploy")
        await _taken(stage, "confirm-overcommit")


async def test_a_deploy_that_fails() -> None:
    async with staged(MIDDLE) as stage:
        await stage.press("slash")
        await stage.type("l40s-b")
        await stage.press("enter", "home", "m", "2", "o")
        await stage.type("Qwen/Qwen3-32B")
        await stage.press("enter")
        await stage.until("Recommended")
        await stage.press("home", "d")
        await stage.until("Cancel", "Deploy")
        await stage.press("right", "enter")
        await stage.until("lock")
        await stage.pass_time(30.0)
        await stage.until("not deployed")
        await _taken(stage, "deploy-failed")
        await _taken(stage, "deploy-failed", SMALL)


# ---------------------------------------------------------------------- deployments


async def test_deployments_logs_and_the_end() -> None:
    async with deployed(MIDDLE) as stage:
        await stage.press("3")
        await stage.until("qwen3-32b", "running")
        await _taken(stage, "deployments")
        await _taken(stage, "deployments", SMALL)
        await stage.press("end", "x")
        await _taken(stage, "stop")
        await stage.press("escape", "enter")
        await _taken(stage, "deployment", MIDDLE)
        await stage.press("escape", "l")
        await stage.until("following")
        await _taken(stage, "logs", SMALL)


# ---------------------------------------------------------------------- everywhere


async def test_the_help_and_the_palette() -> None:
    async with staged(SMALL) as stage:
        await stage.press("f1")
        await _taken(stage, "help")
        await stage.press("escape", "ctrl+p")
        await stage.type("read")
        await _taken(stage, "palette")
