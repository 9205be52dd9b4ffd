"""What a command of the app is, and where it works."""

from dataclasses import dataclass
from enum import StrEnum


class Place(StrEnum):
    """Where a command works: everywhere, or on one screen."""

    APP = "Everywhere"
    FLEET = "Fleet"
    HOST = "Host"
    PLAN = "Plan"
    CANDIDATE = "Candidate"
    COMPARE = "Comparing candidates"
    SAVE = "Saving a file"
    DEPLOYMENTS = "Deployments"
    DEPLOY = "Deploying"
    LOGS = "Logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One thing a person can have done."""

    id: str
    """`fleet.filter`: what the keymap in `config.toml` names it by."""
    key: str
    """Textual's names of its keys, comma between alternatives; empty: from the palette alone."""
    action: str
    """Textual action on the screen (or `app.…`) it belongs to."""
    title: str
    """In the palette: `Filter hosts`."""
    help: str
    """One sentence."""
    place: Place
    footer: str | None = None
    """Short word in the footer; None: not there."""
    mutates: bool = False
    """Changes something on a host: dimmed under `--read-only`."""
    priority: bool = False
    """Works over dialogs, too."""


PALETTE = "app.palette"
"""The footer has it at its right end anyway."""
