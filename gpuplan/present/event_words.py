"""What happens during a deploy or a stop: a line a person reads as it happens, and an object a line for scripts."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, assert_never

from gpuplan.domain.deployment import ContainerSpec, Member, State
from gpuplan.domain.events import (
    At,
    Event,
    Failed,
    MemberSeen,
    Milestone,
    Phase,
    PhaseDone,
    PhaseStarted,
    Remark,
    SpecDecided,
    StateChanged,
    Transfer,
    Undone,
)
from gpuplan.domain.fact import Fact
from gpuplan.domain.secret_text import masked
from gpuplan.present.deployment_document import SCHEMA_VERSION, member_document
from gpuplan.present.document import padded, visible, width_of
from gpuplan.present.findings import word
from gpuplan.present.numbers import listed, percent, span
from gpuplan.present.plan_document import finding_document, plain
from gpuplan.units import GIB, KIB, MIB, plural

WIDEST = 100
"""Columns of an event's line where nobody says how many there are."""
_HOST = 10
"""Columns of the host at a line's start; longer names take what they need, to a third of the line."""
_QUIET = frozenset({Phase.CONNECT, Phase.CLEAN})
"""Phases whose end is not worth a line."""
_QUIET_SECONDS = 1.0
"""Nor is that of any other that took no longer: the next one begins."""
_BANNER = "".join(map(chr, range(0x2580, 0x25A0))) + " "
"""Block characters: vLLM's first line is a picture of its name."""


def event_text(at: At, width: int = WIDEST) -> str | None:
    """One line of at most `width` columns; None for what is not worth one."""
    told = _told(at)
    if told is None:
        return None
    host, text = told
    start = ""
    if host is not None:
        name = visible(host)
        start = padded(name, max(_HOST, min(width_of(name), width // 3))) + " "
    line = start + visible(" ".join(text.split()))
    return (padded(line, width) if width_of(line) > width else line).rstrip()


def event_line(event: Event) -> str | None:
    """An event of no known time as one line of any length."""
    told = _told(At(at=0.0, event=event))
    if told is None:
        return None
    host, text = told
    return visible(" ".join((f"{host}: {text}" if host is not None else text).split()))


def _told(at: At) -> tuple[str | None, str] | None:
    """The host it is about, if one, and the words."""
    event = at.event
    match event:
        case SpecDecided():
            return None, _decided_words(event)
        case PhaseStarted():
            return None, _phase_words(event)
        case PhaseDone():
            return (
                None
                if event.phase in _QUIET or event.seconds < _QUIET_SECONDS
                else (None, f"{PHASE_NAMES[event.phase]}: done in {span(event.seconds)}")
            )
        case Transfer():
            return event.host, transfer_words(event)
        case MemberSeen():
            return event.member.host, member_words(event.member)
        case Milestone():
            return event.host, milestone_words(event)
        case Remark():
            return None, headline(event.fact)
        case Failed():
            first = headline(event.facts[0]) if event.facts else "no cause was found"
            return None, f"failed: {first}"
        case Undone():
            return event.host, undone_words(event)
        case StateChanged():
            return None, event.state.value + (f": {masked(event.message)}" if event.message else "")
        case _:
            assert_never(event)


PHASE_NAMES = {
    Phase.CONNECT: "connect",
    Phase.CAPACITY: "wait for room",
    Phase.LOCK: "lock",
    Phase.COMPARE: "compare with the plan",
    Phase.PREFLIGHT: "preflight",
    Phase.IMAGE: "image",
    Phase.WEIGHTS: "weights",
    Phase.REPLACE: "stop what runs",
    Phase.CREATE: "create",
    Phase.START: "start",
    Phase.REGISTER: "join",
    Phase.LOAD: "load",
    Phase.READY: "serve",
    Phase.ANSWER: "answer",
    Phase.CLEAN: "clean up",
    Phase.UNDO: "undo",
    Phase.STOP: "stop",
}


def _decided_words(event: SpecDecided) -> str:
    spec = event.spec
    places = plural(len(spec.containers), "container") + f" on {listed(list(spec.hosts))}"
    return f"{spec.name}: {spec.model} in {places}"


def _phase_words(event: PhaseStarted) -> str:
    limit = "" if event.deadline_seconds is None else f" (at most {span(event.deadline_seconds)})"
    waits = f", waiting for {event.awaits}" if event.awaits else ""
    return f"{PHASE_NAMES[event.phase]}{waits}{limit}"


def transfer_words(event: Transfer) -> str:
    """`pulling 3.1 of 9.8 GiB (32 %)`."""
    about = event.about or ("pulling" if event.phase is Phase.IMAGE else "downloading")
    total = event.total_bytes
    if total is None or total <= 0:
        return f"{about} {_amount(event.done_bytes, event.done_bytes)} {_unit(event.done_bytes)[1]}"
    done = min(event.done_bytes, total)
    share = percent(int(100 * done / total) / 100)
    return f"{about} {_amount(done, total)} of {_amount(total, total)} {_unit(total)[1]} ({share})"


def _unit(size: int) -> tuple[int, str]:
    return (GIB, "GiB") if size >= GIB else (MIB, "MiB") if size >= MIB else (KIB, "KiB")


def _amount(size: int, scale: int) -> str:
    return f"{size / _unit(scale)[0]:,.1f}"


def milestone_words(event: Milestone) -> str:
    """The engine's own line, without what it paints."""
    return masked(event.text.lstrip(_BANNER))


def member_words(member: Member) -> str:
    """`gpuplan-qwen3-n0 (leader): exited with code 1`."""
    words = f"{member.container} ({member.role.value}): {member.state}"
    if member.state == "running" and member.health not in {None, "starting"}:
        words += f", {member.health}"
    if member.oom_killed:
        words += ", killed for memory"
    elif member.exit_code and member.state in {"exited", "dead"}:
        words += f" with code {member.exit_code}"
    if member.message:
        words += f": {masked(member.message)}"
    return words


def undone_words(event: Undone) -> str:
    """`removed gpuplan-qwen3-n0`."""
    words = {"removed": "removed", "restored": "runs again:", "left": "left behind:"}.get(
        event.what, event.what
    )
    return f"{words} {event.container}" + (f" ({masked(event.why)})" if event.why else "")


def headline(fact: Fact) -> str:
    """A fact's first sentence with its code."""
    return f"{masked(word(fact).headline)} [{fact.code}]"


def event_document(at: At) -> dict[str, Any]:
    """An event as one JSON object: `schema_version`, `event`, `at` (UTC, milliseconds), then the event's own fields."""
    return {
        "schema_version": SCHEMA_VERSION,
        "event": EVENT_NAMES[type(at.event)],
        "at": moment(at.at),
        **_fields(at),
    }


EVENT_NAMES: dict[type, str] = {
    SpecDecided: "spec_decided",
    PhaseStarted: "phase_started",
    PhaseDone: "phase_done",
    Transfer: "transfer",
    MemberSeen: "member_seen",
    Milestone: "milestone",
    Remark: "remark",
    Failed: "failed",
    Undone: "undone",
    StateChanged: "state_changed",
}


def moment(seconds: float) -> str:
    """`2026-11-21T02:00:00.250Z` of seconds since 1970."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _fields(at: At) -> dict[str, Any]:
    event = at.event
    match event:
        case SpecDecided():
            return _decided_fields(event)
        case MemberSeen():
            return {"member": plain(member_document(event.member))}
        case Remark():
            return {"finding": plain(finding_document(event.fact))}
        case Failed():
            findings = [plain(finding_document(fact)) for fact in event.facts]
            return {"phase": event.phase.value, "findings": findings, "logs": list(event.logs)}
        case PhaseStarted() | PhaseDone() | Transfer() | Milestone() | Undone() | StateChanged():
            return {field.name: _plain_text(getattr(event, field.name)) for field in fields(event)}
        case _:
            assert_never(event)


def _plain_text(value: Any) -> Any:
    """Words of hosts and engines with the secrets in them masked."""
    return value if isinstance(value, (Phase, State)) else masked(value) if isinstance(value, str) else value


def _decided_fields(event: SpecDecided) -> dict[str, Any]:
    spec = event.spec
    return {
        "name": spec.name,
        "model": spec.model,
        "served_name": spec.served_name,
        "image": spec.image,
        "vllm_version": spec.vllm_version,
        "endpoints": [server.endpoint for server in spec.servers],
        "spec_hash": event.spec_hash,
        "generation": event.generation,
        "containers": [_container_fields(container) for container in spec.containers],
        "notes": list(spec.notes),
    }


def _container_fields(container: ContainerSpec) -> dict[str, Any]:
    return {
        "host": container.host,
        "container": container.name,
        "role": container.role.value,
        "rank": container.rank,
        "server": container.server,
        "gpus": list(container.gpus),
        "gpu_indexes": list(container.gpu_indexes),
    }
