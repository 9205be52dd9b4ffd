"""The pictures of the README and of docs/tui.md: a short tour of the app on the demo; `python -m tests.tools.make_tour`.

Fleet, a plan that does not fit one GPU, a remedy, the question before anything starts, the deploy, its end.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

from tests.tui.pictures import normal
from tests.tui.stage import Stage, staged

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SIZE = (120, 34)
MODEL = "Qwen/Qwen3-32B"
CONTEXT, CONCURRENCY = "40960", "8"
VARIABLES = ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_ANIMATIONS")


async def tour() -> dict[str, str]:
    """Every picture by its name, in the order of the tour."""
    taken: dict[str, str] = {}

    async def take(stage: Stage, name: str) -> None:
        await stage.rest()
        taken[f"{len(taken) + 1}-{name}"] = picture(stage)

    async with staged(SIZE) as stage:
        await stage.press("c", "down", "down", "right", "down", "down", "down")
        await take(stage, "fleet")
        await stage.press("2", "o")
        await stage.type(MODEL)
        await stage.press("enter")
        await stage.until("Recommended")
        await stage.press("e")
        await stage.type(CONTEXT)
        await stage.press("down")
        await stage.type(CONCURRENCY)
        await stage.press("enter", "escape")
        await stage.until("no fit")
        await stage.press("home", "down")
        await take(stage, "no-fit")
        await stage.press("a", "3")
        await stage.until("applied")
        await take(stage, "remedy")
        await stage.press("d")
        await stage.until("Cancel", "Steps")
        await take(stage, "confirm")
        await stage.press("right", "enter")
        await stage.until("lock")
        await stage.pass_time(12.0)
        await stage.until("load: waits")
        await take(stage, "deploying")
        await stage.pass_time(60.0)
        await stage.until("serves")
        await take(stage, "running")
    return taken


def picture(stage: Stage) -> str:
    """The screen as an SVG that loads nothing from elsewhere."""
    svg = normal(stage.app.export_screenshot(title="gpuplan"))
    svg = re.sub(r"\n\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("<text ", '<text xml:space="preserve" ')


def main() -> None:
    for name in VARIABLES:
        os.environ.pop(name, None)
    PICTURES.mkdir(parents=True, exist_ok=True)
    taken = asyncio.run(tour())
    for old in PICTURES.glob("*.svg"):
        old.unlink()
    for name, svg in taken.items():
        (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")
        sys.stdout.write(f"{PICTURES / name}.svg\n")


if __name__ == "__main__":
    main()
