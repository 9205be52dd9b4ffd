"""Every test of the app sees the same: no animation, no blinking, the theme and size it asks for."""

import os

import pytest
from textual.widgets import Input


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_ANIMATIONS", "GPUPLAN_INVENTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Input.cursor_blink, "_default", False)
    assert "COLUMNS" not in os.environ
