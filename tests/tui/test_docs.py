"""docs/tui.md tells the keys and settings there are."""

import re

from gpuplan.sources.settings import PLAN, UI
from gpuplan.tui import commands, themes
from tests.tools.write_keys import PAGE, page_with, table


def test_the_keys_in_the_page_are_those_of_the_app() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page_with(text, table()) == text, "run: python -m tests.tools.write_keys"


def test_every_setting_is_in_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, kind in (("Ui", UI), ("Plan", PLAN)):
        for key in kind.definitions[name]["properties"]:
            assert re.search(rf"^\s*(# )?\[?(ui\.)?{re.escape(key)}\b", text, re.MULTILINE), key
    for name in themes.NAMES:
        assert name in text


def test_every_command_named_in_the_page_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r'^"([a-z_]+\.[a-z_]+)" = ', text, re.MULTILINE))
    assert named
    assert named <= set(commands.BY_ID)
