"""What is known of members that failed, handed to the diagnosis; and their first logs, saved before anything is removed."""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuplan.deploying import timestamps
from gpuplan.deploying.diagnose import diagnose
from gpuplan.deploying.diagnosis import Diagnosis, MemberEvidence
from gpuplan.domain.deployment import ENDED, ContainerSpec
from gpuplan.domain.fact import Fact
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.deploy_run import Run
from gpuplan.operations.saved_logs import file_name, write_log

if TYPE_CHECKING:
    from gpuplan.operations.deploy_watch import Watch

INSPECT_SECONDS = 20.0
CATCH_UP_SECONDS = 5.0


def diagnosed(run: Run, watch: "Watch | None") -> Diagnosis | None:
    """The root cause over all members; None where there is nothing to judge."""
    members = gather(run, watch)
    return diagnose(members, run.spec.predicted, now=time.time()) if members else None


def gather(run: Run, watch: "Watch | None") -> tuple[MemberEvidence, ...]:
    """Every member that was made: its state as Docker tells it now, and its log as it was heard."""
    offsets = {host.name: host.facts.clock_offset_seconds or 0.0 for host in run.opened.fleet.hosts}
    silent = watch.silent_hosts() if watch is not None else frozenset()
    states = on_each(
        {
            f"{host}\n{name}": partial(_inspect, run, host, identity)
            for (host, name), identity in run.made.items()
            if host not in silent
        },
        INSPECT_SECONDS,
    )
    members = []
    for host, name in run.made:
        state = states.get(f"{host}\n{name}")
        seen: dict[str, Any] = {} if isinstance(state, Outcome) or state is None else state
        ear = watch.ears.get((host, name)) if watch is not None else None
        if ear is not None and seen.get("Status") in ENDED:
            ear.catch_up(CATCH_UP_SECONDS)
        lines = ear.lines if ear is not None else ()
        spec = run.container(host, name)
        members.append(
            MemberEvidence(
                host=host,
                container=name,
                role=spec.role,
                rank=spec.rank,
                server=spec.server,
                state=str(seen.get("Status", "unknown")),
                exit_code=seen.get("ExitCode"),
                oom_killed=bool(seen.get("OOMKilled")),
                error=run.masked(str(seen.get("Error") or "")),
                finished_at=_finished(seen),
                lines=tuple((timestamps.seconds(line.at), run.secrets.masked(line.text)) for line in lines),
                clock_offset_seconds=offsets.get(host, 0.0),
            )
        )
    return tuple(members)


def _finished(state: Mapping[str, Any]) -> float | None:
    """When it ended; None while it runs, and where it never ran (Docker then says the year 1)."""
    at = timestamps.seconds(str(state.get("FinishedAt") or ""))
    return at if at is not None and at > 0 else None


def refusal_facts(run: Run, host: str, why: str) -> tuple[Fact, ...]:
    """What an engine said when it refused to create or start a container."""
    made = [name for where, name in run.made if where == host]
    spec = run.container(host, made[-1]) if made else run.spec.containers[0]
    return diagnose((_refused(spec, why),), run.spec.predicted).facts()


def _refused(spec: ContainerSpec, why: str) -> MemberEvidence:
    return MemberEvidence(
        host=spec.host,
        container=spec.name,
        role=spec.role,
        rank=spec.rank,
        state="created",
        exit_code=128,
        oom_killed=False,
        error=why,
        finished_at=None,
        lines=(),
    )


def save_logs(run: Run, watch: "Watch | None", directory: Path) -> tuple[str, ...]:
    """Each member's log, secrets masked, in a file of mode 0600; the paths, of which none is lost to a full disk."""
    if watch is None:
        return ()
    saved = []
    try:
        for (host, name), ear in watch.ears.items():
            if lines := ear.lines:
                path = directory / file_name(f"{host}-{name}.log")
                write_log(path, lines, mask=run.masked)
                saved.append(str(path))
    except OSError as error:
        saved.append(f"not all were saved: {directory}: {error.strerror}")
    return tuple(saved)


def _inspect(run: Run, host: str, identity: str) -> dict[str, Any] | None:
    from gpuplan.remote import containers as remote

    if not identity:
        return None
    document = remote.inspect(run.opened.engine_of(host), identity)
    return dict(document["State"]) if document is not None else None
