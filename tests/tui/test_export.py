"""Copying and saving: what is chosen goes to the clipboard or to a file that nobody else can read."""

import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from textual.pilot import Pilot
from textual.widgets import Input, Static

from gpuplan.domain.plan import StrategyName, Verdict
from gpuplan.errors import UsageError
from gpuplan.sources import plan_json
from gpuplan.tui.exports import MOST_COPIED, Kind, export_of
from gpuplan.tui.screens.export import ChooseExport, SaveAs
from tests.tui.candidates import CandidateApp, Looked, settled
from tests.tui.fakes import ROOT, snapshot_fleet
from tests.tui.screen import shown

BUSY = ROOT / "tests" / "golden" / "cases" / "fleets" / "busy.json"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def _open(app: CandidateApp, pilot: Pilot[None], key: str, number: str, **serving: Any) -> None:
    app.detail.show_candidate(app.looked.ask(**serving), (1, 1), 1, None)
    await pilot.press(key)
    await pilot.pause()
    assert isinstance(app.screen, ChooseExport)
    await pilot.press(number)
    await pilot.pause()


async def test_the_serve_command_is_copied_and_said() -> None:
    app = CandidateApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await _open(app, pilot, "y", "2")
        await settled(app, pilot)
        assert app.clipboard.startswith("vllm serve Qwen/Qwen3-32B")
        assert "OSC 52" in app.toasts[-1]
        assert "vllm serve" in app.toasts[-1]


async def test_the_deploy_command_names_the_inventory_and_masks_secrets() -> None:
    app = CandidateApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await _open(app, pilot, "y", "3", context="8k", engine_args=("--api-key", "hunter2-hunter2"))
        await settled(app, pilot)
        words = shlex.split(app.clipboard)
        assert words[:5] == ["gpuplan", "deploy", "Qwen/Qwen3-32B", "--inventory", "inventory.yaml"]
        assert words[-2:] == ["--api-key", "***"]
        assert "secrets stand there as ***" in app.toasts[-1]


async def test_the_plan_is_copied_with_the_shown_candidate_and_read_again(tmp_path: Path) -> None:
    app = CandidateApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await _open(app, pilot, "y", "1")
        await settled(app, pilot)
        path = tmp_path / "copied.json"
        path.write_text(app.clipboard)
        saved = plan_json.load(path)
        shown_one = app.detail.shown
        assert shown_one is not None
        assert shown_one.candidate is not None
        assert saved.strategy is StrategyName.SINGLE_GPU
        assert saved.candidate.placement == shown_one.candidate.placement
        if len(app.clipboard) > MOST_COPIED:
            assert "save it instead" in app.toasts[-1]


async def test_nothing_is_copied_after_escape() -> None:
    app = CandidateApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.detail.show_candidate(app.looked.ask(), (1, 0), 1, None)
        await pilot.press("y")
        await pilot.pause()
        await pilot.press("escape")
        await settled(app, pilot)
        assert app.clipboard == ""
        assert app.toasts == []


async def test_a_file_is_saved_for_its_owner_alone(tmp_path: Path) -> None:
    app = CandidateApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await _open(app, pilot, "w", "1")
        await pilot.pause()
        assert isinstance(app.screen, SaveAs)
        assert app.screen.query_one(Input).value == "qwen3-32b-plan.json"
        await pilot.press("enter")
        await settled(app, pilot)
        path = tmp_path / "qwen3-32b-plan.json"
        assert plan_json.load(path).reference == "Qwen/Qwen3-32B"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "saved qwen3-32b-plan.json" in app.toasts[-1]


async def test_a_file_that_is_there_is_replaced_only_when_told(tmp_path: Path) -> None:
    path = tmp_path / "qwen3-32b-serve.sh"
    path.write_text("mine")
    app = CandidateApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await _open(app, pilot, "w", "2")
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert path.read_text() == "mine"
        await pilot.press("enter")
        await _written(app, pilot)
        assert path.read_text() == "mine"
        assert "is there already: ctrl+r replaces it" in _note(app)
        await pilot.press("enter")
        await _written(app, pilot)
        assert path.read_text() == "mine"
        await pilot.press("ctrl+r")
        await settled(app, pilot)
        assert path.read_text().startswith("vllm serve")


async def test_another_name_takes_the_answer_back(tmp_path: Path) -> None:
    path = tmp_path / "qwen3-32b-serve.sh"
    path.write_text("mine")
    app = CandidateApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await _open(app, pilot, "w", "2")
        await pilot.press("enter")
        await _written(app, pilot)
        await pilot.press("end", "x", "backspace", "ctrl+r")
        await _written(app, pilot)
        assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("", "no name was given"), ("nowhere\0", "cannot be written"), ("file/plan.json", "is no directory")],
)
async def test_what_cannot_be_written_is_told(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").write_text("")
    app = CandidateApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await _open(app, pilot, "w", "2")
        app.screen.query_one(Input).value = name
        await pilot.press("enter")
        await _written(app, pilot)
        assert isinstance(app.screen, SaveAs)
        assert reason in _note(app)
        await pilot.press("escape")
        await settled(app, pilot)
        assert [item.name for item in tmp_path.iterdir()] == ["file"]


async def test_compose_is_a_file_for_each_host(tmp_path: Path) -> None:
    app = CandidateApp()
    async with app.run_test(size=(80, 24)) as pilot:
        plan = app.looked.ask("deepseek-ai/DeepSeek-R1", context="16k")
        at = next(at for at, one in enumerate(plan.strategies) if one.candidates)
        app.detail.show_candidate(plan, (at, 0), at, None)
        await pilot.press("w")
        await pilot.pause()
        await pilot.press("4")
        while not isinstance(app.screen, SaveAs):
            await pilot.pause()
        app.screen.query_one(Input).value = "made"
        await pilot.press("enter")
        await settled(app, pilot)
        hosts = [host.host for host in plan.strategies[at].candidates[0].placement]
        for host in hosts:
            document = yaml.safe_load((tmp_path / "made" / f"compose-{host}.yaml").read_text())
            assert document["services"]


async def test_why_there_is_no_compose_file_is_told() -> None:
    app = CandidateApp()
    app.looked.failure = UsageError("[red]no port", hint="free one")
    async with app.run_test(size=(80, 24)) as pilot:
        await _open(app, pilot, "y", "4")
        await settled(app, pilot)
        assert app.toasts == ["[red]no port\nfree one"]
        assert app.clipboard == ""


async def test_the_list_is_chosen_from_by_arrows_too() -> None:
    app = CandidateApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.detail.show_candidate(app.looked.ask(), (1, 0), 1, None)
        await pilot.press("y")
        await pilot.pause()
        assert "docker compose" in shown(app)
        await pilot.press("down", "enter")
        await settled(app, pilot)
        assert app.clipboard.startswith("vllm serve")


def test_an_overcommitted_candidate_can_be_saved_and_read(tmp_path: Path) -> None:
    looked = Looked(snapshot_fleet(BUSY))
    plan = looked.ask(gpus=("h1:0",))
    assert plan.strategies[0].candidates[0].verdict is Verdict.OVERCOMMIT
    made = export_of(Kind.PLAN, plan, (0, 0), spec=None, inventory=None)
    path = tmp_path / "over.json"
    path.write_text(made.text)
    saved = plan_json.load(path)
    assert saved.strategy is StrategyName.MANUAL
    assert saved.candidate.verdict is Verdict.OVERCOMMIT


async def _written(app: CandidateApp, pilot: Pilot[None]) -> None:
    """The attempt to write has ended, the dialog still waits."""
    await pilot.pause()
    writing = [worker for worker in app.workers if worker.group == "save"]
    if writing:
        await app.workers.wait_for_complete(writing)
    await pilot.pause()


def _note(app: CandidateApp) -> str:
    return str(app.screen.query_one("#export-note", Static).render())
