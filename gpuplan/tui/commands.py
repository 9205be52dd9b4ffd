"""Every command of the app, once: its key, footer label, palette entry, help and place in the docs come from here.

They are listed by screen in the modules `commands_…`.
"""

from textual.binding import Binding

from gpuplan.tui.command import PALETTE, Command, Place
from gpuplan.tui.commands_app import APP
from gpuplan.tui.commands_deploy import DEPLOY
from gpuplan.tui.commands_fleet import FLEET
from gpuplan.tui.commands_plan import PLAN

__all__ = ["ALL", "BY_ID", "MUTATING", "PALETTE", "Command", "Place", "bindings", "of"]

ALL: tuple[Command, ...] = (*APP, *FLEET, *PLAN, *DEPLOY)
BY_ID = {command.id: command for command in ALL}
MUTATING = {command.action: command for command in ALL if command.mutates}
"""By their actions, which no other command has."""


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
            show=command.footer is not None and command.id != PALETTE,
            tooltip=command.help,
            id=command.id,
            priority=command.priority,
        )
        for command in of(place)
        if command.key
    ]
