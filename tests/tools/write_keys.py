"""Writes the table of keys in docs/tui.md from the app's registry of commands: `python -m tests.tools.write_keys`."""

import sys
from pathlib import Path

from gpuplan.tui import commands
from gpuplan.tui.commands import Command, Place
from gpuplan.tui.keymap import keys_of
from gpuplan.tui.offers import shown_key

PAGE = Path(__file__).parents[2] / "docs" / "tui.md"
BEGIN = "<!-- keys: written by `python -m tests.tools.write_keys` -->"
END = "<!-- end of keys -->"


def table() -> str:
    """Every command by place, as Markdown."""
    blocks = []
    for place in Place:
        found = commands.of(place)
        if found:
            rows = [_row(command) for command in found]
            head = [f"**{place.value}**", "", "| key | command | id in the keymap |", "|---|---|---|"]
            blocks.append("\n".join([*head, *rows]))
    return "\n\n".join(blocks)


def page_with(text: str, keys: str) -> str:
    """The page with this table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{keys}\n\n{END}{after}"


def _row(command: Command) -> str:
    keys = " ".join(f"`{_written(key)}`" for key in keys_of(command, {})) or "palette"
    mark = " (changes hosts)" if command.mutates else ""
    return f"| {_plain(keys)} | {_plain(command.title)} – {_plain(command.help)}{mark} | `{command.id}` |"


def _written(key: str) -> str:
    *modifiers, last = key.split("+")
    return "+".join([*modifiers, shown_key(last)])


def _plain(text: str) -> str:
    return text.replace("|", r"\|")


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page_with(text, table()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
