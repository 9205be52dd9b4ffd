"""Every command of the app, once: its key, footer label, palette entry, help and place in the docs come from here."""

from dataclasses import dataclass
from enum import StrEnum

from textual.binding import Binding


class Place(StrEnum):
    """Where a command works: everywhere, or on one screen."""

    APP = "Everywhere"
    FLEET = "Fleet"
    PLAN = "Plan"
    DEPLOYMENTS = "Deployments"
    DEPLOY = "Deploying"
    LOGS = "Logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One thing a person can have done."""

    id: str
    """`fleet.filter`: what the keymap in `config.toml` names it by."""
    key: str
    """Textual's names of its keys, comma between alternatives."""
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


ALL: tuple[Command, ...] = (
    Command(
        id="app.fleet",
        key="1,f2",
        action="app.switch_mode('fleet')",
        title="Fleet",
        help="Hosts and GPUs as they are.",
        place=Place.APP,
        footer="Fleet",
    ),
    Command(
        id="app.plan",
        key="2,f3",
        action="app.switch_mode('plan')",
        title="Plan",
        help="Every strategy for a model, side by side.",
        place=Place.APP,
        footer="Plan",
    ),
    Command(
        id="app.deployments",
        key="3,f4",
        action="app.switch_mode('deployments')",
        title="Deployments",
        help="What runs.",
        place=Place.APP,
        footer="Deployments",
    ),
    Command(
        id="app.quit",
        key="ctrl+q,q",
        action="app.leave",
        title="Quit",
        help="Leave; asks first when a deploy is under way.",
        place=Place.APP,
        footer="Quit",
    ),
)


def of(place: Place) -> tuple[Command, ...]:
    """The commands of a place, in the order they are listed in."""
    return tuple(command for command in ALL if command.place is place)


def bindings(place: Place) -> list[Binding]:
    """Textual's bindings for the screen (or app) of a place."""
    return [
        Binding(
            command.key,
            command.action,
            command.footer or command.title,
            show=command.footer is not None,
            tooltip=command.help,
            id=command.id,
        )
        for command in of(place)
    ]
