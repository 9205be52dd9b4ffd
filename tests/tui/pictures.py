"""Pictures of screens: an SVG a screen, compared as text; `python -m tests.tui.pictures DIR` renders them to look at.

`GPUPLAN_UPDATE_GOLDEN=1 pytest tests/tui` writes the pictures anew; look at them before they are kept.
"""

import difflib
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from textual.app import App

PICTURES = Path(__file__).parent / "svg"
UPDATE = os.environ.get("GPUPLAN_UPDATE_GOLDEN", "0") not in {"", "0"}
FONT = "DejaVu Sans Mono"
FONT_PIXELS = 20.27
"""At this size a character of the font is as wide as a cell of the picture."""
MOST_SHOWN = 40

CELL_PIXELS = 12.2

_TEXT = re.compile(r"<text[^>]*? x=\"([\d.]+)\" y=\"([\d.]+)\"[^>]*? clip-path=[^>]*>(.*?)</text>", re.DOTALL)


def assert_picture(app: App[Any], name: str) -> None:
    """The screen looks as it did when `svg/NAME.svg` was made."""
    drawn = normal(app.export_screenshot(title="gpuplan"))
    path = PICTURES / f"{name}.svg"
    if UPDATE:
        PICTURES.mkdir(exist_ok=True)
        path.write_text(drawn, encoding="utf-8")
        return
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    if drawn == kept:
        return
    beside = Path(tempfile.mkdtemp(prefix="gpuplan-pictures-")) / path.name
    beside.write_text(drawn, encoding="utf-8")
    if not kept:
        raise AssertionError(f"there is no picture {path.name} yet; as it is now: {beside}")
    raise AssertionError(f"{path.name} looks different; as it is now: {beside}\n{difference(kept, drawn)}")


def normal(svg: str) -> str:
    """The SVG without what changes from one run to the next: Rich makes ids and class names of a hash."""
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    return "\n".join(line.rstrip() for line in svg.strip().split("\n")) + "\n"


def text_in(svg: str) -> list[str]:
    """The lines of text in a picture, from top to bottom."""
    rows: dict[float, str] = {}
    for x, y, text in _TEXT.findall(svg):
        before = rows.get(float(y), "").ljust(round(float(x) / CELL_PIXELS))
        rows[float(y)] = before + html.unescape(text).replace("\xa0", " ")
    return [rows[y].rstrip() for y in sorted(rows)]


def difference(kept: str, drawn: str) -> str:
    """In words: which lines of text differ, or that colours alone do."""
    before, after = text_in(kept), text_in(drawn)
    if before == after:
        return "the text is the same; colours, styles or the size differ"
    told = [
        line
        for line in difflib.unified_diff(before, after, "kept", "now", lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    rest = len(told) - MOST_SHOWN
    return "\n".join(told[:MOST_SHOWN] + ([f"and {rest} more lines"] if rest > 0 else []))


def readable(svg: str) -> str:
    """The SVG with a font whose characters are as wide as the cells, blanks kept."""
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;]+;", f"font-family: {FONT};", svg)
    svg = re.sub(r"(-matrix \{[^}]*?font-size: )20px", rf"\g<1>{FONT_PIXELS}px", svg)
    return svg.replace("<text ", '<text xml:space="preserve" ')


def render(directory: Path) -> list[Path]:
    """Every picture as a PNG in a directory; needs `rsvg-convert`."""
    program = shutil.which("rsvg-convert")
    if program is None:
        raise SystemExit("rsvg-convert is not there: install librsvg2-bin")
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for path in sorted(PICTURES.glob("*.svg")):
        target = directory / f"{path.stem}.png"
        source = readable(path.read_text(encoding="utf-8"))
        subprocess.run([program, "-o", str(target)], input=source.encode(), check=True)
        made.append(target)
    return made


if __name__ == "__main__":
    for picture in render(Path(sys.argv[1] if len(sys.argv) > 1 else "pictures")):
        sys.stdout.write(f"{picture}\n")
