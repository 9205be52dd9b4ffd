"""The header's line and the help: what stays when there is little room."""

import pytest

from gpuplan.present.app_text import KeyGroup, KeyHelp, Tab, header_line, help_lines, source_label, too_small
from gpuplan.present.document import text_of, width_of

TABS = (
    Tab(key="1", name="Fleet"),
    Tab(key="2", name="Plan", current=True),
    Tab(key="3", name="Deployments"),
)
RUN = "deploying qwen3-32b: load"


def _text(
    width: int, source: str = "live: inventory.yaml", read_only: bool = False, running: str = ""
) -> str:
    text = text_of((header_line(width, TABS, source=source, read_only=read_only, running=running),))
    assert width_of(text) <= width
    return text


def test_with_room_everything_is_there() -> None:
    text = _text(120, read_only=True, running=RUN)
    assert text.startswith(" gpuplan  1 Fleet ▸2 Plan  3 Deployments ")
    assert text.endswith(f"  {RUN}  READ ONLY  live: inventory.yaml")


@pytest.mark.parametrize("width", [60, 80, 99])
def test_what_matters_stays_when_it_is_narrow(width: int) -> None:
    text = _text(
        width, source="live: /home/somebody/clusters/production/inventory.yaml", read_only=True, running=RUN
    )
    assert "▸2 Plan" in text
    assert "READ ONLY" in text
    assert "deploying " in text
    assert text.endswith("yaml")
    assert "live: …" in text


def test_a_long_path_does_not_take_the_names_of_the_modes() -> None:
    text = _text(80, source="live: /home/somebody/clusters/production/inventory.yaml")
    assert text.startswith(" 1 Fleet ▸2 Plan  3 Deployments ")
    assert text.endswith("  live: …ody/clusters/production/inventory.yaml")


def test_nothing_but_the_modes() -> None:
    assert _text(80, source="") == " gpuplan  1 Fleet ▸2 Plan  3 Deployments"


@pytest.mark.parametrize("width", range(1, 60))
def test_no_width_breaks_it(width: int) -> None:
    header_line(width, TABS, source="live: inventory.yaml", read_only=True, running=RUN)


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("live", "live: x[/].yaml"),
        ("snapshot", "snapshot: x[/].yaml"),
        ("declared", "declared, not probed: x[/].yaml"),
        ("demo", "DEMO – recorded fleet"),
    ],
)
def test_the_source_is_named(kind: str, label: str) -> None:
    assert source_label(kind, "x[/].yaml") == label


def test_a_name_cannot_move_the_cursor() -> None:
    assert "\x1b" not in source_label("live", "a\x1b[2J")


def test_the_sentence_of_a_small_terminal() -> None:
    assert too_small(40, 10, (60, 15)).startswith("40×10 is too small a terminal: gpuplan needs 60×15")


def test_help_tells_keys_and_what_cannot_be_done() -> None:
    group = KeyGroup(
        title="Fleet",
        rows=(
            KeyHelp(keys="/", title="Filter", help="Only hosts that match."),
            KeyHelp(keys="^d ctrl+shift+d", title="Deploy", help="Start it.", why_not="read only"),
        ),
    )
    text = text_of(help_lines("Help", ["About [it]."], (group,), 60))
    assert text.split("\n") == [
        "Help",
        "About [it].",
        "",
        "Fleet",
        "  /             Filter – Only hosts that match.",
        "  ^d ctrl+shift+d Deploy – Start it.",
        "                not now: read only",
    ]


def test_help_keeps_to_its_width() -> None:
    rows = (KeyHelp(keys="x", title="Word " * 6, help="word " * 30),)
    lines = help_lines("Help", ["word " * 40], (KeyGroup(title="All", rows=rows),), 50)
    assert max(width_of("".join(span.text for span in line)) for line in lines) <= 50
