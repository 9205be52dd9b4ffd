"""The app shows what the command line prints: the same table, the same JSON."""

import json
import subprocess
import sys

import pytest
from textual.pilot import Pilot

from gpuplan.operations.plan import ServingOptions
from gpuplan.present.document import text_of
from gpuplan.present.plan_document import plain, plan_document
from gpuplan.present.plan_text import plan_text
from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.screens.plan import PlanScreen
from gpuplan.tui.services import Question
from gpuplan.tui.widgets.strategies import MARKS
from tests.tui.fakes import EXAMPLE, ROOT, FakeServices
from tests.tui.screen import shown

QUESTIONS = {
    "plain": ("Qwen/Qwen3-32B", ServingOptions(), []),
    "turned": (
        "Qwen/Qwen3-235B-A22B",
        ServingOptions(
            context="32K",
            concurrency=8,
            kv_cache_dtype="fp8",
            replicas=2,
            placement="binpack",
            executor="mp",
            gpus=("h100-a:0,1,2,3,4,5,6,7", "h100-b:0,1,2,3,4,5,6,7"),
            allow_overcommit=True,
            engine_args=("--gpu-memory-utilization", "0.9", "--max-num-seqs", "64"),
        ),
        [
            *("--context", "32K", "--concurrency", "8", "--kv-cache-dtype", "fp8", "--replicas", "2"),
            *("--placement", "binpack", "--executor", "mp", "--allow-overcommit"),
            *("--gpus", "h100-a:0,1,2,3,4,5,6,7", "--gpus", "h100-b:0,1,2,3,4,5,6,7"),
            *("--", "--gpu-memory-utilization", "0.9", "--max-num-seqs", "64"),
        ],
    ),
    "nothing fits": (
        "Qwen/Qwen3-235B-A22B",
        ServingOptions(context="131072", concurrency=500, no_distributed=True),
        ["--context", "131072", "--concurrency", "500", "--no-distributed"],
    ),
}


async def opened(pilot: Pilot[None]) -> PlanScreen:
    for key in (None, "2"):
        if key is not None:
            await pilot.press(key)
        await pilot.pause()
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
    screen = pilot.app.screen
    assert isinstance(screen, PlanScreen)
    return screen


@pytest.mark.parametrize("name", QUESTIONS)
async def test_the_plan_is_the_command_lines_byte_for_byte(name: str) -> None:
    reference, serving, words = QUESTIONS[name]
    command = [
        *(sys.executable, "-m", "gpuplan", "plan", reference, "-i", str(EXAMPLE), "--no-probe", "-o", "json"),
        *words,
    ]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    app = GpuplanApp(FakeServices(), question=Question(reference=reference, serving=serving))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        assert screen.plan is not None
        assert plain(plan_document(screen.plan)) == json.loads(printed)


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("size", [(100, 30), (120, 40), (200, 60)])
async def test_the_table_has_the_lines_of_the_command_line(name: str, size: tuple[int, int]) -> None:
    reference, serving, _ = QUESTIONS[name]
    app = GpuplanApp(FakeServices(), question=Question(reference=reference, serving=serving))
    async with app.run_test(size=size) as pilot:
        screen = await opened(pilot)
        table = screen.strategies
        assert screen.plan is not None
        width = table.scrollable_content_region.width - MARKS
        printed = text_of(plan_text(screen.plan, width)).splitlines()
        rows = [table.source.line(index, width + MARKS) for index in range(len(table.source))]
        for row in rows:
            text = "".join(span.text for span in row)
            whole = text[MARKS:].rstrip().removesuffix(" …")
            assert any(line.startswith(whole) for line in printed)
            assert text.rstrip() in shown(app)
        header = "".join(span.text for span in table.header)
        assert header[MARKS:].rstrip() in printed
        answer = next((text for text in printed if text.startswith("Recommended: ")), None)
        assert answer is None or answer in shown(app) or size[0] < 120
