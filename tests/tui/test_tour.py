"""The pictures in docs/pictures are those of the app as it is, and the pages show them."""

import re
from pathlib import Path

from tests.tools.make_tour import PICTURES, tour
from tests.tui.pictures import difference

ROOT = Path(__file__).parents[2]
MAKE = "python -m tests.tools.make_tour makes them anew"


async def test_the_pictures_are_current() -> None:
    taken = await tour()
    assert sorted(path.stem for path in PICTURES.glob("*.svg")) == sorted(taken), MAKE
    for name, drawn in taken.items():
        kept = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
        assert drawn == kept, f"{name}.svg is not current; {MAKE}\n{difference(kept, drawn)}"


def test_every_picture_that_is_shown_is_there() -> None:
    shown = 0
    for page in (ROOT / "README.md", ROOT / "docs" / "tui.md"):
        for link in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).is_file(), f"{page.name}: {link}"
            shown += 1
    assert shown >= len(list(PICTURES.glob("*.svg")))
