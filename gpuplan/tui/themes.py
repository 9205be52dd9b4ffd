"""Themes of our own: a dark and a light one with calm surfaces, and one of high contrast for poor screens and tired eyes."""

from textual.theme import Theme

DARK = Theme(
    name="gpuplan-dark",
    primary="#7AA2F7",
    secondary="#7DCFFF",
    accent="#C0A8F0",
    success="#73C991",
    warning="#E5B567",
    error="#F2777A",
    foreground="#D8DEE9",
    background="#14171E",
    surface="#181C24",
    panel="#232936",
    dark=True,
    variables={"block-cursor-background": "#3A4A6B", "block-cursor-foreground": "#FFFFFF"},
)
LIGHT = Theme(
    name="gpuplan-light",
    primary="#1F4FA8",
    secondary="#0B6B8A",
    accent="#6A3FB5",
    success="#1B7340",
    warning="#8A5A00",
    error="#B3202E",
    foreground="#1C2430",
    background="#FFFFFF",
    surface="#FAFAF7",
    panel="#E8E9E4",
    dark=False,
    variables={
        "block-cursor-background": "#C9D8F5",
        "block-cursor-foreground": "#10151C",
        "footer-key-foreground": "#1F4FA8",
    },
)
CONTRAST = Theme(
    name="gpuplan-contrast",
    primary="#FFFF00",
    secondary="#00FFFF",
    accent="#FF80FF",
    success="#00FF00",
    warning="#FFB000",
    error="#FF6060",
    foreground="#FFFFFF",
    background="#000000",
    surface="#000000",
    panel="#000000",
    dark=True,
    luminosity_spread=0.0,
    text_alpha=1.0,
    variables={
        "block-cursor-background": "#FFFF00",
        "block-cursor-foreground": "#000000",
        "footer-key-foreground": "#FFFF00",
        "text-muted": "#FFFFFF",
        "border": "#FFFFFF",
        "border-blurred": "#C0C0C0",
    },
)
OURS = (DARK, LIGHT, CONTRAST)
NAMES = tuple(theme.name for theme in OURS)
DEFAULT = DARK.name
VARIABLE = "TEXTUAL_THEME"


def after(name: str) -> str:
    """The next of our themes; the first one after any other."""
    return NAMES[(NAMES.index(name) + 1) % len(NAMES)] if name in NAMES else DEFAULT
