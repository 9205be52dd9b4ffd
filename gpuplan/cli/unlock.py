"""`gpuplan unlock`: who works on the hosts, and taking their locks away."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.operations.unlock import LockSeen, Unlocked

HELP = (
    "Show who holds the deployment lock of each host, and break it after asking. A lock ends by itself with the run "
    "that holds it, also when that was killed or cut off (within a minute); this is for one that hangs."
)
EXAMPLE = "Example: gpuplan unlock --host h100-a --yes"


def command(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    inventory: o.Inventory = None,
    host: o.Hosts = None,
    label: o.Labels = None,
    host_key: o.HostKey = None,
    jobs: o.Jobs = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Show and break locks; exit 5 when one could not be broken."""
    from gpuplan.operations.unlock import unlock

    meant = o.fleet_options(
        inventory=inventory, snapshot=None, hosts=host, labels=label, host_key=host_key, jobs=jobs
    )
    done = unlock(meant, lambda found: _confirmed(found, yes=yes))
    _show(done, output_format)
    if not done.complete:
        raise typer.Exit(ExitCode.DEPLOYMENT_FAILED)


def _confirmed(found: "Sequence[LockSeen]", *, yes: bool) -> bool:
    if yes or not any(lock.holder is not None for lock in found):
        return True  # what a killed run left locks nothing
    from gpuplan.present.lock_text import locks_text

    if not output.can_ask():
        output.talk(locks_text(_rows(found), (), output.width()))
        raise UsageError(
            "unlock asks before it breaks a lock that is held, and there is no terminal to ask on",
            hint="add --yes, once you know that the run that holds it hangs",
        )
    output.talk(locks_text(_rows(found), (), output.width()))
    return output.asked("Break the locks that are held? A run that still works loses these hosts.")


def _rows(found: "Sequence[LockSeen]") -> list[tuple[str, str, bool]]:
    """Host, what is told of its lock, and whether that is bad."""
    from gpuplan.operations.host_locks import described

    rows = []
    for lock in found:
        if lock.problem is not None:
            rows.append((lock.host, lock.problem, True))
        elif lock.holder is not None:
            rows.append((lock.host, f"locked: {described(lock.holder)}", True))
        elif lock.left is not None:
            rows.append((lock.host, f"free; left by a run that was killed: {described(lock.left)}", False))
        else:
            rows.append((lock.host, "free", False))
    return rows


def _show(done: "Unlocked", output_format: o.OutputFormat) -> None:
    after = {lock.host: lock for lock in done.after}
    now = [after.get(lock.host, lock) for lock in done.before]
    if output_format is o.OutputFormat.JSON:
        output.show_json(_document(done, now))
        return
    from gpuplan.present.lock_text import locks_text

    output.show(locks_text(_rows(now), done.silent, output.width()))
    broken = [lock.host for lock in done.before if lock.holder is not None and after.get(lock.host) != lock]
    freed = [host for host in broken if host in after and after[host].holder is None]
    if freed:
        output.remark(f"broken: the lock of {', '.join(freed)}")


def _document(done: "Unlocked", now: "Sequence[LockSeen]") -> dict[str, object]:
    from dataclasses import asdict

    return {
        "schema_version": 1,
        "locks": [
            {
                "host": lock.host,
                "holder": asdict(lock.holder) if lock.holder is not None else None,
                "broken": before.holder is not None and lock.holder is None and lock.problem is None,
                "problem": lock.problem,
            }
            for before, lock in zip(done.before, now, strict=True)
        ],
        "silent_hosts": [
            {"name": host.name, "stage": host.failure.stage, "detail": host.failure.detail}
            for host in done.silent
            if host.failure is not None
        ],
    }
