"""`gpuplan sweep`: stop what was idle for longer than its keep-alive."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuplan.cli import changing, output
from gpuplan.cli import options as o
from gpuplan.errors import ExitCode, UsageError
from gpuplan.units import parse_duration, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.domain.events import Event
    from gpuplan.operations.sweep import Due, SweepReport

HELP = (
    "Stop the deployments that were idle for longer than their keep-alive (deploy --keep-alive); one without, or with a "
    "negative one, is never stopped. Idle time counts from the first sweep of this machine that sees a deployment idle, so "
    "let it run every few minutes: docs/sweeping.md has lines for cron and systemd. Asks first. Exit 0: nothing failed; "
    "4: no host answers; 5: something was not stopped; 130: the answer was no."
)
EXAMPLE = "Example: gpuplan sweep --yes --quiet"


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--idle-for: {error}", hint="--idle-for 10m") from None


IdleFor = Annotated[
    int | None,
    typer.Option(
        "--idle-for",
        parser=_duration,
        metavar="DURATION",
        help="Instead of the keep-alive of those that have one: 90s, 10m, 2h, 1d.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Look and tell, stop nothing.")]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print nothing unless something was, or should have been, stopped."),
]


def command(
    yes: changing.Yes = False,
    dry_run: DryRun = False,
    idle_for: IdleFor = None,
    quiet: Quiet = False,
    drain: changing.Drain = None,
    wait: changing.Wait = None,
    inventory: o.Inventory = None,
    host: o.Hosts = None,
    label: o.Labels = None,
    host_key: o.HostKey = None,
    jobs: o.Jobs = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Stop them one by one; exit 5 when one is not gone."""
    from gpuplan.cli.progress import STATUS
    from gpuplan.operations.stop import DRAIN_SECONDS, StopChoice
    from gpuplan.operations.sweep import SweepChoice, sweep

    changing.refuse_senseless("sweep", yes=yes or dry_run, drain=drain, wait=wait)
    meant = o.fleet_options(
        inventory=inventory, snapshot=None, hosts=host, labels=label, host_key=host_key, jobs=jobs
    )
    stop = StopChoice(drain_seconds=DRAIN_SECONDS if drain is None else drain, wait_seconds=wait or 0)
    choice = SweepChoice(stop=stop, idle_for=idle_for, dry_run=dry_run)
    try:
        report = sweep(
            meant,
            choice,
            lambda due: yes or _confirmed(due, stop.drain_seconds),
            _silent if quiet else changing.tell,
        )
    except KeyboardInterrupt:
        output.remark("gpuplan status shows what runs still; the next sweep goes on from there")
        raise
    finally:
        STATUS.clear()
    _show(report, output_format, quiet=quiet)
    if not report.asked:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not report.complete:
        raise typer.Exit(ExitCode.DEPLOYMENT_FAILED)


def _silent(event: "Event") -> None:
    del event


def _confirmed(due: "Sequence[Due]", drain: int) -> bool:
    from gpuplan.present.document import wrapped
    from gpuplan.present.stop_text import intent_text
    from gpuplan.present.sweep_text import reason

    for one in due:
        intended = one.intended
        containers = [
            (each.member.host, each.member.container, each.member.health or each.member.state)
            for each in intended.containers
        ]
        output.talk(intent_text(intended.deployment, containers, intended.silent, drain, output.width()))
        output.talk(wrapped(reason(one.judgement), output.width(), first="  "))
    return output.asked(f"Stop {plural(len(due), 'deployment')} and remove these containers?")


def _show(report: "SweepReport", output_format: o.OutputFormat, *, quiet: bool) -> None:
    from gpuplan.present.sweep_text import DONE, changes_text, sweep_text

    rows = [(one.judgement, one.stopped.facts if one.stopped else ()) for one in report.deployments]
    if quiet and not any(judgement.outcome in DONE for judgement, _ in rows):
        return
    if output_format is o.OutputFormat.JSON:
        _show_json(report)
    elif quiet:
        output.show(changes_text(rows, output.width()))
    else:
        output.show(sweep_text(rows, report.silent, report.hosts, output.width()))


def _show_json(report: "SweepReport") -> None:
    from gpuplan.present.plan_document import plain
    from gpuplan.present.sweep_document import sweep_document, swept_document

    deployments = [
        swept_document(one.judgement, one.stopped.removed, one.stopped.facts, one.stopped.logs)
        if one.stopped is not None
        else swept_document(one.judgement)
        for one in report.deployments
    ]
    complete = report.complete and report.asked
    output.show_json(
        plain(sweep_document(deployments, report.silent, dry_run=report.dry_run, complete=complete))
    )
