"""What the commands that end what runs have in common: their options, what they refuse, their course on the status line."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.errors import UsageError

if TYPE_CHECKING:
    from gpuplan.domain.events import Event

Name = Annotated[str, typer.Argument(metavar="NAME", help="The deployment, as `gpuplan status` shows it.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Drain = Annotated[
    int | None,
    typer.Option(
        "--drain",
        parser=o._whole("--drain"),
        metavar="SECONDS",
        help="How long requests in flight may take to end (default 30; 0: cut them off).",
    ),
]
Wait = Annotated[
    int | None,
    typer.Option(
        "--wait", parser=o._whole("--wait"), metavar="SECONDS", help="Wait for another run on its hosts."
    ),
]


def refuse_senseless(verb: str, *, yes: bool, drain: int | None, wait: int | None) -> None:
    """Raises UsageError for a span below zero, and where nobody can be asked."""
    for option, given in (("--drain", drain), ("--wait", wait)):
        if given is not None and given < 0:
            raise UsageError(
                f"{option} {given}: must not be negative", hint=f"write {option} 0 for not at all"
            )
    if not yes and not output.can_ask():
        raise UsageError(
            f"{verb} asks before it ends anything, and there is no terminal to ask on", hint="add --yes"
        )


def tell(event: "Event") -> None:
    """What is waited for, on the status line; remarks stay."""
    from gpuplan.cli.progress import STATUS
    from gpuplan.domain.events import PhaseStarted, Remark
    from gpuplan.present.event_words import event_line
    from gpuplan.present.findings import word

    match event:
        case PhaseStarted():
            STATUS.show(event_line(event) or "")
        case Remark(fact=fact):
            output.remark(word(fact).headline)
        case _:
            pass
