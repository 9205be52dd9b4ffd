"""Text from elsewhere for a table's cell: only characters whose width every terminal agrees on, so that columns stand."""

from unicodedata import category

from gpuplan.present.document import visible

_DISPUTED = (
    (0x1160, 0x11FF),  # vowels and finals of Hangul, which join the letter before
    (0x2630, 0x2637),
    (0x268A, 0x268F),
    (0x3164, 0x3164),
    (0x4DC0, 0x4DFF),
    (0xD7B0, 0xD7FF),
    (0xFFA0, 0xFFA0),
    (0x16FE0, 0x16FFF),
    (0x1D300, 0x1D37F),
    (0x1F3FB, 0x1F3FF),  # skin tones, which join the picture before
)
_SELECTORS = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
"""They turn a letter into a picture two cells wide, in some terminals."""


def steady(text: str) -> str:
    """Harmless as `visible` makes it; characters of disputed width replaced."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        "�" if _disputed(char) else char for char in visible(text) if not _within(char, _SELECTORS)
    )


def _disputed(char: str) -> bool:
    return category(char) == "Mc" or _within(char, _DISPUTED)


def _within(char: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= ord(char) <= last for first, last in ranges)
