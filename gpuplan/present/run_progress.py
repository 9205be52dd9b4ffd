"""A deploy as it goes, from its events so far: what each phase and each host has come to, and how it ended.

Whoever has read the same events shows the same lines. Moments are seconds since 1970; nothing here looks at a clock.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuplan.domain.deployment import ContainerRole, Deployment, Member, State
from gpuplan.domain.events import (
    At,
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
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.secret_text import masked
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, width_of, wrapped
from gpuplan.present.event_words import (
    PHASE_NAMES,
    headline,
    member_words,
    milestone_words,
    transfer_words,
    undone_words,
)
from gpuplan.present.findings import word
from gpuplan.present.numbers import gpu_range, span
from gpuplan.present.outcome_text import ROLES, outcome_text
from gpuplan.present.refusal_text import finding_lines

_ELSEWHERE = {Phase.CONNECT, Phase.CAPACITY, Phase.UNDO, Phase.STOP, Phase.CLEAN}
ORDER = tuple(phase for phase in Phase if phase not in _ELSEWHERE)
"""Phases a deploy is known by, in the order it passes through them."""
DONE, NOW, LATER, BROKEN = "■", "▶", "□", "▲"
SAME = "GP811"
"""What was asked for ran already."""
_BAR = 20
_MOST_LOGS = 6
_WELL = frozenset({"running", "healthy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """All that is known of a deploy after its events so far."""

    name: str = ""
    begun_at: float | None = None
    last_at: float | None = None
    phase: PhaseStarted | None = None
    """Under way; None: none is."""
    phase_at: float = 0.0
    done: Mapping[Phase, float] = field(default_factory=dict)
    """Seconds each took."""
    hosts: tuple[str, ...] = ()
    members: Mapping[tuple[str, str], Member] = field(default_factory=dict)
    """By host and container, as last seen."""
    transfers: Mapping[tuple[str, str], Transfer] = field(default_factory=dict)
    """Of the phase under way, by host and what is moved."""
    words: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The engine's latest milestone, by host and container."""
    remarks: tuple[Fact, ...] = ()
    failed: Failed | None = None
    undone: tuple[Undone, ...] = ()
    state: State = State.PREPARING
    decided: SpecDecided | None = None

    @property
    def changed(self) -> bool:
        """False: what was asked for ran already, and was left alone."""
        return all(fact.code != SAME for fact in self.remarks)


NOTHING_YET = RunProgress()


def advanced(progress: RunProgress, events: Iterable[At]) -> RunProgress:
    """The progress after these events, from what it was before them."""
    for at in events:
        progress = _after(progress, at)
    return progress


def _after(progress: RunProgress, at: At) -> RunProgress:
    event = at.event
    begun = at.at if progress.begun_at is None else progress.begun_at
    progress = replace(progress, begun_at=begun, last_at=at.at)
    match event:
        case PhaseStarted():
            return replace(progress, phase=event, phase_at=at.at, transfers={})
        case PhaseDone():
            under_way = progress.phase is not None and progress.phase.phase is event.phase
            return replace(
                progress,
                done={**progress.done, event.phase: event.seconds},
                phase=None if under_way else progress.phase,
                transfers={} if under_way else progress.transfers,
            )
        case Transfer():
            known = {**progress.transfers, (event.host, event.about): event}
            return _with_host(replace(progress, transfers=known), event.host)
        case MemberSeen():
            member = event.member
            seen = {**progress.members, (member.host, member.container): member}
            return _with_host(replace(progress, members=seen), member.host)
        case Milestone():
            said = {**progress.words, (event.host, event.container): milestone_words(event)}
            return _with_host(replace(progress, words=said), event.host)
        case Remark():
            return replace(progress, remarks=(*progress.remarks, event.fact))
        case Failed():
            return replace(progress, failed=event, state=State.ERROR, phase=None)
        case Undone():
            return _with_host(replace(progress, undone=(*progress.undone, event)), event.host)
        case StateChanged():
            return replace(progress, state=event.state)
        case SpecDecided():
            hosts = tuple(dict.fromkeys((*progress.hosts, *event.spec.hosts)))
            return replace(progress, decided=event, name=event.spec.name, hosts=hosts)


def _with_host(progress: RunProgress, host: str) -> RunProgress:
    return progress if host in progress.hosts else replace(progress, hosts=(*progress.hosts, host))


def phase_lines(progress: RunProgress, width: int, now: float) -> Lines:
    """What is under way, what it waits for, since when and until when at the latest."""
    phase = progress.phase
    if phase is None:
        return (line(Span("between two steps" if progress.begun_at else "beginning", Role.DIM)),)
    passed = max(0.0, now - progress.phase_at)
    words = span(passed)
    role = Role.PLAIN
    if phase.deadline_seconds is not None:
        left = phase.deadline_seconds - passed
        words += f", {span(left)} left" if left > 0 else f", its {span(phase.deadline_seconds)} are over"
        role = Role.PLAIN if left > 0 else Role.WARNING
    waits = f"waits for {masked(phase.awaits)}" if phase.awaits else "under way"
    return wrapped(f"{PHASE_NAMES[phase.phase]}: {waits} ({words})", width, role=role)


def steps_line(progress: RunProgress, width: int) -> Lines:
    """`■ lock  ■ image  ▶ load  □ serve`: every phase, how far it is; those it did not need are left out."""
    words = [(_mark(progress, phase), PHASE_NAMES[phase]) for phase in (*_order(progress), *_extra(progress))]
    rows: list[Line] = []
    row: list[Span] = []
    used = 0
    for (mark, role), name in words:
        size = width_of(name) + 4
        if row and used + size > width:
            rows.append(tuple(row))
            row, used = [], 0
        row.append(Span(f"{mark} {name}  ", role))
        used += size
    return (*rows, tuple(row))


def _order(progress: RunProgress) -> Iterator[Phase]:
    reached = {*progress.done, *((progress.phase.phase,) if progress.phase is not None else ())}
    if progress.failed is not None:
        reached.add(progress.failed.phase)
    furthest = max((ORDER.index(phase) for phase in reached if phase in ORDER), default=-1)
    for place, phase in enumerate(ORDER):
        if phase in reached or place > furthest:
            yield phase


def _extra(progress: RunProgress) -> tuple[Phase, ...]:
    undoing = progress.phase is not None and progress.phase.phase is Phase.UNDO
    return (Phase.UNDO,) if undoing or Phase.UNDO in progress.done or progress.undone else ()


def _mark(progress: RunProgress, phase: Phase) -> tuple[str, Role]:
    if progress.failed is not None and progress.failed.phase is phase:
        return BROKEN, Role.BAD
    if progress.phase is not None and progress.phase.phase is phase:
        return NOW, Role.TITLE
    if phase in progress.done or phase is Phase.UNDO:
        return DONE, Role.GOOD
    return LATER, Role.DIM


def event_span(at: At, text: str) -> Span:
    """An event's line, in the role of what it tells."""
    event = at.event
    role = Role.PLAIN
    match event:
        case Failed():
            role = Role.BAD
        case StateChanged():
            role = ROLES[event.state]
        case Remark():
            role = Role.WARNING if event.fact.severity is not Severity.INFO else Role.DIM
        case Undone():
            role = Role.WARNING if event.what == "left" else Role.PLAIN
        case PhaseStarted():
            role = Role.TITLE
        case PhaseDone() | Milestone():
            role = Role.DIM
        case _:
            pass
    return Span(text, role)


def progress_text(progress: RunProgress, width: int) -> Lines:
    """The phases, then each host with its containers and what is on its way to it."""
    lines: list[Line] = [*steps_line(progress, width)]
    for host in progress.hosts:
        lines.append(EMPTY)
        lines += _host_lines(progress, host, width)
    for fact in progress.remarks:
        if fact.code != SAME:
            lines += [EMPTY, *wrapped(headline(fact), width, first="! ", role=Role.WARNING)]
    return tuple(lines)


def _host_lines(progress: RunProgress, host: str, width: int) -> Iterator[Line]:
    members = [member for (where, _), member in progress.members.items() if where == host]
    yield line(Span(visible(host), Role.TITLE))
    for (where, _), transfer in progress.transfers.items():
        if where == host:
            yield from _transfer_lines(transfer, width)
    seen = {member.container for member in members}
    decided = progress.decided.spec.containers if progress.decided is not None else ()
    for container in decided:
        if container.host == host and container.name not in seen:
            text = f"  {visible(container.name)} ({container.role.value}{_on(container.gpu_indexes)}): not made yet"
            yield line(Span(padded(text, min(width, width_of(text))), Role.DIM))
    for member in members:
        yield from wrapped(
            member_words(member) + _on(member.gpu_indexes), width, first="  ", rest="    ", role=_role(member)
        )
        said = progress.words.get((host, member.container))
        if said and member.role is not ContainerRole.HELPER:
            yield line(Span(padded(f"    {visible(said)}", width).rstrip(), Role.DIM))
    for undone in progress.undone:
        if undone.host == host:
            yield from _undone_lines(undone, width)


def _on(indexes: Sequence[int]) -> str:
    return f", GPU {gpu_range(tuple(indexes))}" if indexes else ""


def _role(member: Member) -> Role:
    if member.state in {"exited", "dead", "missing"} and member.role is not ContainerRole.HELPER:
        return Role.BAD if member.exit_code != 0 else Role.WARNING
    return Role.GOOD if member.health == "healthy" else Role.PLAIN


def _transfer_lines(transfer: Transfer, width: int) -> Iterator[Line]:
    words = visible(masked(transfer_words(transfer)))
    total = transfer.total_bytes
    if not total or total <= 0:
        yield line(padded(f"  {words}", width).rstrip())
        return
    filled = min(_BAR, _BAR * transfer.done_bytes // total)
    bar = Span("█" * filled, Role.WEIGHTS), Span("░" * (_BAR - filled), Role.FREE)
    room = width - _BAR - 4
    yield line("  ", *bar, "  ", padded(words, room).rstrip() if room > 0 else "")


def _undone_lines(undone: Undone, width: int) -> Iterator[Line]:
    role = Role.WARNING if undone.what == "left" else Role.DIM
    yield from wrapped(undone_words(undone), width, first="  ", rest="    ", role=role)


def state_words(progress: RunProgress, now: float, *, ended: bool = False) -> tuple[str, Role]:
    """`starting, 3 min 20 s`: for one line about the whole."""
    until = progress.last_at if ended and progress.last_at is not None else now
    passed = "" if progress.begun_at is None else f", {span(max(0.0, until - progress.begun_at))}"
    if progress.phase is not None and progress.phase.phase is Phase.UNDO and not ended:
        return f"being taken back{passed}", Role.WARNING
    return f"{progress.state.value}{passed}", ROLES[progress.state]


def end_text(
    progress: RunProgress, exit_code: int, deployment: Deployment | None, message: str, width: int
) -> Lines:
    """How it ended: the address and the figures, or the reasons in full, what was undone and where the logs lie."""
    if exit_code == 0 and deployment is not None:
        return outcome_text(deployment, width, changed=progress.changed)
    if exit_code == 0:
        return wrapped(
            f"{progress.name} serves; `gpuplan status {progress.name}` shows it", width, role=Role.GOOD
        )
    lines: list[Line] = []
    name = visible(progress.name or (deployment.name if deployment is not None else "") or "it")
    failed = progress.failed
    if failed is not None and failed.facts:
        lines.append(line(Span(f"{name} was not deployed", Role.BAD)))
        for fact in failed.facts:
            lines += finding_lines(word(fact), width)
    else:
        for number, text in enumerate(message.split("\n")):
            role = Role.HINT if text.startswith("hint:") else Role.BAD if number == 0 else Role.PLAIN
            lines += wrapped(masked(text), width, rest="  ", role=role)
    lines += [EMPTY, *_undone_text(progress, width)]
    if failed is not None and failed.logs:
        lines += [EMPTY, line(Span("Logs of what was started", Role.TITLE))]
        lines += [row for path in failed.logs[:_MOST_LOGS] for row in wrapped(path, width, first="  ")]
    return tuple(lines)


def _undone_text(progress: RunProgress, width: int) -> Iterator[Line]:
    if not progress.undone:
        if progress.decided is None:
            yield line(Span("Nothing was started.", Role.DIM))
            return
        text = "What was taken back is not known; `gpuplan status` shows what runs."
        yield from wrapped(text, width, role=Role.DIM)
        return
    left = any(one.what == "left" for one in progress.undone)
    yield line(Span("Taken back, but for what is named" if left else "Taken back", Role.TITLE))
    for undone in progress.undone:
        host = f"  {padded(visible(undone.host), 12)} "
        for number, row in enumerate(_undone_lines(undone, max(20, width - width_of(host)))):
            text = "".join(piece.text for piece in row)
            yield line(host if number == 0 else " " * width_of(host), Span(text.strip(), row[0].role))
