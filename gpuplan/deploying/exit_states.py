"""What a container's end says by itself: Docker's error, the OOM flag, the exit code (deploy-facts section 9)."""

from collections.abc import Iterator

from gpuplan.deploying.diagnosis import NEVER_STARTED, Cause, MemberEvidence, shown
from gpuplan.deploying.signature import Weight
from gpuplan.deploying.signatures import recognise

MEANINGS = {
    0: "it ended by itself, without an error",
    2: "it refused its arguments",
    125: "Docker could not run it",
    126: "its program may not be executed",
    127: "its program is not in the image",
    128: "it could not be started",
    132: "an instruction this CPU does not have (SIGILL)",
    134: "it aborted (SIGABRT)",
    135: "a bus error, mostly a full /dev/shm (SIGBUS)",
    136: "an arithmetic fault (SIGFPE)",
    137: "it was killed (SIGKILL): the host ran out of memory, or a stop took too long",
    139: "a segmentation fault (SIGSEGV)",
    143: "it was asked to stop (SIGTERM)",
}
_GROUPS = {125: "RUN_START", 126: "RUN_127", 127: "RUN_127", 128: "RUN_START", 135: "MEM_SHM"}
_STOPPED = {0, 130, 143}
"""Codes a member has that was stopped; they explain nothing where anything else does."""


def meaning(exit_code: int) -> str:
    """The exit code in plain words."""
    if exit_code in MEANINGS:
        return MEANINGS[exit_code]
    return f"ended by signal {exit_code - 128}" if 128 < exit_code < 160 else "it ended with an error"


def states_of(member: MemberEvidence) -> Iterator[Cause]:
    """Causes that need no log line; an ordinary error (exit code 1) is none of them."""
    refused = bool(member.error) and member.ended
    if refused:
        match = recognise(member.error)
        yield cause_of(
            member,
            match.signature.group if match is not None else "RUN_START",
            weight=Weight.ROOT,
            at=NEVER_STARTED,
            line=match.text if match is not None else member.error,
            figures={
                "source": "docker",
                **(match.figures if match is not None else {}),
                **({"exit_code": member.exit_code} if member.exit_code else {}),
            },
        )
    if member.oom_killed:
        yield cause_of(
            member,
            "MEM_HOST",
            weight=Weight.ROOT,
            at=member.ours(member.finished_at),
            figures={"oom_killed": True, "exit_code": member.exit_code},
        )
    code = member.exit_code
    if refused or member.oom_killed or not member.ended or code is None or member.state == "created":
        return
    if code not in (1, 2):
        yield cause_of(
            member,
            _GROUPS.get(code, "RUN_EXIT"),
            weight=Weight.LIKELY if code in _STOPPED else Weight.ROOT,
            at=member.ours(member.finished_at),
            figures={"exit_code": code, "meaning": meaning(code)},
        )


def cause_of(
    member: MemberEvidence,
    group: str,
    *,
    weight: Weight,
    at: float | None = None,
    line: str = "",
    figures: dict[str, object] | None = None,
) -> Cause:
    """A cause in a member, its words made fit to be shown."""
    return Cause(
        group=group,
        weight=weight,
        host=member.host,
        container=member.container,
        role=member.role,
        rank=member.rank,
        server=member.server,
        at=at,
        line=shown(line),
        figures={
            name: shown(value, 120) if isinstance(value, str) else value
            for name, value in (figures or {}).items()
            if value is not None and value != ""
        },
    )
