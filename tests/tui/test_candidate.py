"""The candidate in full: sections stay folded and the cursor stays put over plans; containers are looked at when opened."""

from dataclasses import replace

from gpuplan.errors import UsageError
from gpuplan.tui.widgets.candidate import CandidateDetail
from tests.fleets import host
from tests.tui.candidates import CandidateApp, Looked, lines_of, settled
from tests.tui.screen import shown

SIZE = (80, 24)


def _move(app: CandidateApp, *key: str) -> None:
    app.detail.move_to(key)
    assert app.detail.key == key


async def test_the_candidate_is_shown_with_its_figures() -> None:
    app = CandidateApp()
    async with app.run_test(size=SIZE) as pilot:
        app.detail.show_candidate(app.looked.ask(), (1, 0), 1, None)
        await pilot.pause()
        text = shown(app)
        assert "✓ fits  single GPU on h100-a:0 (TP1)" in text
        assert "▾ Memory" in text
        assert "claim 72.85 GiB of 79.18 GiB" in text
        assert all(len(row) <= 80 for row in text.split("\n"))


async def test_a_term_opens_to_its_formula_and_stays_open_over_a_new_plan() -> None:
    app = CandidateApp()
    async with app.run_test(size=SIZE) as pilot:
        first = app.looked.ask()
        app.detail.show_candidate(first, (1, 0), 1, None)
        await pilot.pause()
        _move(app, "terms", "0", "budget", "#0")
        await pilot.press("enter")
        assert any("ceil(total × gpu_memory_utilization)" in row for row in lines_of(app))
        assert app.detail.key == ("terms", "0", "budget", "#0")
        app.detail.show_candidate(app.looked.ask(context="8k"), (1, 0), 1, first)
        await pilot.pause()
        assert any("ceil(total × gpu_memory_utilization)" in row for row in lines_of(app))
        assert app.detail.key == ("terms", "0", "budget", "#0")
        assert any("context 29,968 → 8,000 (−21,968)" in row for row in lines_of(app))


async def test_space_inside_a_section_folds_it() -> None:
    app = CandidateApp()
    async with app.run_test(size=SIZE) as pilot:
        app.detail.show_candidate(app.looked.ask(), (1, 0), 1, None)
        await pilot.pause()
        _move(app, "memory", "bars", "#1")
        await pilot.press("space")
        assert app.detail.key == ("memory", "#0")
        assert not any("█ weights" in row for row in lines_of(app))
        app.detail.show_candidate(app.looked.ask(context="8k"), (2, 0), 2, None)
        await pilot.pause()
        assert not any("█ weights" in row for row in lines_of(app))
        await pilot.press("space")
        assert any("█ weights" in row for row in lines_of(app))


async def test_what_was_opened_is_scrolled_into_view() -> None:
    app = CandidateApp()
    async with app.run_test(size=SIZE) as pilot:
        app.detail.show_candidate(app.looked.ask(), (1, 0), 1, None)
        await pilot.pause()
        _move(app, "curve", "#0")
        await pilot.press("enter")
        await pilot.pause()
        text = shown(app)
        assert "▾ Context against requests" in text
        assert "context (tokens of a request)" in text


async def test_a_remedy_is_chosen_by_enter() -> None:
    app = CandidateApp()
    async with app.run_test(size=SIZE) as pilot:
        plan = app.looked.ask(engine_args=("--gpu-memory-utilization", "0.8"))
        assert not plan.strategies[1].candidates
        assert len(plan.strategies[1].remedies) > 1
        app.detail.show_candidate(plan, None, 1, None)
        await pilot.pause()
        _move(app, "remedies", "2", "#0")
        await pilot.press("enter")
        await pilot.pause()
        assert app.remedies == [(1, 1)]


async def test_containers_are_looked_at_when_their_section_is_opened_and_no_earlier() -> None:
    app = CandidateApp()
    async with app.run_test(size=SIZE) as pilot:
        app.detail.show_candidate(app.looked.ask(), (1, 0), 1, None)
        await pilot.pause()
        assert app.looked.looks == []
        _move(app, "containers", "#0")
        await pilot.press("enter")
        assert any("looking at what would run" in row for row in lines_of(app))
        await settled(app, pilot)
        rows = lines_of(app)
        assert app.looked.looks == [(1, 0)]
        assert any("docker run --detach --name gpuplan-qwen3-32b" in row for row in rows)
        assert all(len(row) <= 80 for row in rows)
        app.detail.show_candidate(app.looked.ask(context="8k"), (2, 0), 2, None)
        await settled(app, pilot)
        assert app.looked.looks == [(1, 0), (2, 0)]
        assert any("--tensor-parallel-size 2" in " ".join(row.split()) for row in lines_of(app))


async def test_only_the_last_of_many_plans_is_looked_into() -> None:
    app = CandidateApp()
    async with app.run_test(size=SIZE) as pilot:
        plans = [app.looked.ask(context=context) for context in ("4k", "8k", "16k")]
        app.detail.show_candidate(plans[0], (1, 0), 1, None)
        await pilot.pause()
        _move(app, "containers", "#0")
        await pilot.press("enter")
        app.detail.show_candidate(plans[1], (1, 0), 1, None)
        app.detail.show_candidate(plans[2], (1, 0), 1, None)
        await settled(app, pilot)
        assert len(app.looked.looks) == 1
        assert any("--max-model-len 16000" in " ".join(row.split()) for row in lines_of(app))


async def test_why_containers_cannot_be_told_is_a_row() -> None:
    app = CandidateApp()
    app.looked.failure = UsageError("h1: no port [red] is free\x1b[2J", hint="free one")
    async with app.run_test(size=SIZE) as pilot:
        app.detail.show_candidate(app.looked.ask(), (1, 0), 1, None)
        await pilot.pause()
        _move(app, "containers", "#0")
        await pilot.press("enter")
        await settled(app, pilot)
        text = "\n".join(lines_of(app))
        assert "no port [red] is free" in text
        assert "hint: free one" in text
        assert "\x1b" not in text


async def test_a_secret_is_nowhere_on_the_screen() -> None:
    app = CandidateApp()
    async with app.run_test(size=(200, 100)) as pilot:
        plan = app.looked.ask(engine_args=("--api-key", "hunter2-hunter2"))
        app.detail.show_candidate(plan, (1, 0), 1, None)
        await pilot.pause()
        for section in ("serve", "deploy", "containers"):
            _move(app, section, "#0")
            await pilot.press("enter")
        await settled(app, pilot)
        text = "\n".join(lines_of(app))
        assert "hunter2" not in text
        assert "--api-key ***" in text
        assert "VLLM_API_KEY" in text


async def test_another_width_breaks_the_lines_anew() -> None:
    app = CandidateApp()
    async with app.run_test(size=(120, 40)) as pilot:
        app.detail.show_candidate(app.looked.ask(), (1, 0), 1, None)
        await pilot.pause()
        wide = len(lines_of(app))
        await pilot.resize_terminal(62, 24)
        await pilot.pause()
        assert len(lines_of(app)) > wide
        assert all(len(row) <= 62 for row in lines_of(app))


async def test_hostile_names_are_shown_and_harmless() -> None:
    name = "h[/]\x1b[31m\u202e漢[red]"
    base = host("h1", "H100", 2)
    app = CandidateApp(Looked())
    fleet = replace(app.looked.answer, hosts=(replace(base, name=name),))
    app.looked.answer = fleet
    async with app.run_test(size=SIZE) as pilot:
        app.detail.show_candidate(app.looked.ask("Qwen/Qwen3-4B"), (1, 0), 1, None)
        await pilot.pause()
        await pilot.press("equals_sign")
        await pilot.pause()
        text = shown(app)
        assert "h[/]" in text
        assert "[red]" in text
        assert "\x1b" not in text
        assert "\u202e" not in text


async def test_nothing_shown_takes_no_key_amiss() -> None:
    app = CandidateApp()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("enter", "space", "down", "equals_sign", "y", "w")
        await settled(app, pilot)
        assert app.screen is app.screen_stack[0]
        app.detail.show_candidate(app.looked.ask(), (1, 0), 1, None)
        await pilot.pause()
        app.detail.show_nothing()
        await pilot.press("enter", "space", "y")
        await settled(app, pilot)
        assert lines_of(app) == []
        assert isinstance(app.focused, CandidateDetail)
