"""`gpuplan logs NAME`: what all members print, merged by time."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuplan.domain.deployment import Member
    from gpuplan.operations.logs import Printed

HELP = (
    "What the members of a deployment print, merged by time; secrets are masked. With -f it goes on, through lost "
    "connections, until every member has ended; Ctrl-C ends it at once (exit 130)."
)
EXAMPLE = "Example: gpuplan logs qwen3-32b -f --tail 50"


def command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The deployment, as `gpuplan status` shows it.")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is printed from now on.")
    ] = False,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail", parser=o._whole("--tail"), metavar="N", help="Only the last N lines of each member."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="10m|TIME", help="Only lines since then: 90s, 10m, 2h, 1d, or a time."
        ),
    ] = None,
    member: Annotated[
        list[str] | None,
        typer.Option("--member", metavar="NAME", help="Only this container, role or HOST/ROLE (repeatable)."),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="Show the time of each line.")
    ] = False,
    inventory: o.Inventory = None,
    host: o.Hosts = None,
    label: o.Labels = None,
    host_key: o.HostKey = None,
    jobs: o.Jobs = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Print lines until there are no more."""
    from gpuplan.operations.logs import LogChoice, read_logs

    if tail is not None and tail < 0:
        raise UsageError(f"--tail {tail}: must not be negative", hint="--tail 0 -f shows only what is new")
    meant = o.fleet_options(
        inventory=inventory, snapshot=None, hosts=host, labels=label, host_key=host_key, jobs=jobs
    )
    choice = LogChoice(follow=follow, tail=tail, since=since, members=tuple(member or ()))

    def begin(members: "Sequence[Member]") -> "Callable[[Printed], None]":
        return _as_json if output_format is o.OutputFormat.JSON else _rows(members, timestamps=timestamps)

    read_logs(meant, name, choice, begin, output.remark)


def _rows(members: "Sequence[Member]", *, timestamps: bool) -> "Callable[[Printed], None]":
    from gpuplan.present.document import padded, visible, width_of

    labels = {member: visible(_label(member)) for member in members}
    column = max((width_of(label) for label in labels.values()), default=0)

    def show(printed: "Printed") -> None:
        at = f"{printed.at[:23]}Z  " if timestamps else ""
        print(f"{padded(labels[printed.member], column)}  {at}{visible(printed.text)}", flush=True)

    return show


def _label(member: "Member") -> str:
    """`h100-b/follower1`."""
    server = f"-{member.server}" if member.server else ""
    return f"{member.host}/{member.role.value}{member.rank or ''}{server}"


def _as_json(printed: "Printed") -> None:
    import json

    member = printed.member
    line = {
        "at": printed.at,
        "host": member.host,
        "container": member.container,
        "role": member.role.value,
        "rank": member.rank,
        "stream": "stderr" if printed.error else "stdout",
        "text": printed.text,
    }
    print(json.dumps(line), flush=True)
