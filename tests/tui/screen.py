"""What a person sees: the screen as lines of text."""

from typing import Any

from textual.app import App


def shown(app: App[Any]) -> str:
    """The screen's text, a line each, without trailing blanks."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)
