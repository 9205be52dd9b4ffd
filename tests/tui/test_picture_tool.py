"""The tool that compares pictures."""

from pathlib import Path

import pytest

from tests.tui import pictures
from tests.tui.fakes import FakeServices
from tests.tui.pictures import assert_picture, difference, normal, text_in
from tests.tui.shells import Shell


async def test_a_difference_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "PICTURES", tmp_path)
    monkeypatch.setattr(pictures, "UPDATE", False)
    app = Shell(FakeServices())
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        with pytest.raises(AssertionError, match="there is no picture board"):
            assert_picture(app, "board")
        (tmp_path / "board.svg").write_text(normal(app.export_screenshot(title="gpuplan")), encoding="utf-8")
        assert_picture(app, "board")
        await pilot.press("2")
        with pytest.raises(AssertionError) as caught:
            assert_picture(app, "board")
        told = str(caught.value).split("\n")
        assert "-this is fleet" in told
        assert "+this is plan" in told
        await pilot.press("1", "ctrl+t")
        with pytest.raises(AssertionError, match="the text is the same; colours, styles or the size differ"):
            assert_picture(app, "board")


async def test_the_text_of_a_picture_is_what_is_shown() -> None:
    app = Shell(FakeServices())
    async with app.run_test(size=(80, 24)):
        text = text_in(app.export_screenshot(title="gpuplan"))
        assert "this is fleet" in text
        assert "row 2" in text


def test_two_runs_differ_in_nothing() -> None:
    one = '<text class="terminal-123-r1" x="0" y="20" clip-path="url(#terminal-123-line-0)">a</text>'
    assert normal(one) == normal(one.replace("123", "456"))
    assert difference(one, one.replace(">a<", ">b<")) == "-a\n+b"
