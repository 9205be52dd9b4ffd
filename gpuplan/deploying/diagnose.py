"""The root cause of a failed deployment, out of the logs and states of all its members.

The earliest certain cause counts, by one clock; what others print when one fails is never shown as the cause, and where nothing
is recognised that is said, with the last lines, instead of a guess.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuplan.deploying.diagnosis import Cause, Diagnosis, MemberEvidence, shown
from gpuplan.deploying.exit_states import cause_of, meaning, states_of
from gpuplan.deploying.memory_terms import in_terms_of_the_plan, kind_of_exhaustion
from gpuplan.deploying.remedy import remedy_for
from gpuplan.deploying.signature import Weight
from gpuplan.deploying.signatures import Match, scan
from gpuplan.domain.deployment import Actual, Prediction
from gpuplan.engine.log_line import level, strip
from gpuplan.engine.startup_log import Milestone, MilestoneKind, actual_of, milestone

SILENT_SECONDS = 300
"""So long without a line from any member of a server that is not ready: it hangs (VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS)."""

MOST_CONSEQUENCES = 8

_WAITING = frozenset(
    (
        "NET_FOLLOWER_MISSING",
        "NET_MASTER_UNREACHABLE",
        "NET_RDV_HANG",
        "DP_HANDSHAKE",
        "RAY_PG",
        "RAY_NODE_IP",
        "RAY_GCS_LOST",
        "RAY_WORKER_DEAD",
        "RUN_READY_TIMEOUT",
        "RUN_SILENT_HANG",
        "NCCL_ERROR",
        "RUN_EXIT",
    )
)
"""Somebody waited for a member in vain, or was stopped: a member that ended before that is where to look."""

_TERMS = ("MEM_FREE", "MEM_WEIGHTS", "MEM_ACTIVATION", "MEM_KV_NONE", "MEM_KV_SMALL", "MEM_GRAPH")


def diagnose(
    members: Sequence[MemberEvidence], predicted: Prediction | None = None, now: float | None = None
) -> Diagnosis:
    """Why the deployment failed; without a root nothing in the evidence is wrong.

    `now` (seconds since 1970, our clock) lets a server whose members all run be told as hanging.
    """
    predicted = predicted or Prediction()
    reads = [_read(member) for member in members]
    several = {read.member.server for read in reads if _hosts(reads, read.member.server) > 1}
    served = _served(reads)
    found = [cause for read in reads for cause in _causes(read, reads, several, served)]
    remarks = _first_of_each(
        cause for cause in found if cause.weight is Weight.REMARK and cause.group != "RAY_STOP_KILLED"
    )
    causes = [cause for cause in found if cause.weight is not Weight.REMARK]
    cause = _root(causes, reads) or _silence(reads, served, now)
    if cause is None:
        return Diagnosis()
    if cause.group in _TERMS:
        own = {
            read.member.container: read.member.lines for read in reads if read.member.server == cause.server
        }
        actual = actual_of(own) if own else Actual()
        cause = replace(cause, figures=in_terms_of_the_plan(cause.group, cause.figures, predicted, actual))
    place = (cause.host, cause.container, cause.group)
    followed = _first_of_each(
        other
        for other in causes
        if (other.host, other.container, other.group) != place and _is_later(other, cause)
    )
    return Diagnosis(
        root=cause,
        remedy=remedy_for(cause, predicted),
        consequences=followed[:MOST_CONSEQUENCES],
        remarks=remarks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A member with what its log holds."""

    member: MemberEvidence
    matches: tuple[Match, ...]
    milestones: tuple[tuple[int, Milestone], ...]
    """Each with the index of its line."""
    texts: tuple[str, ...] = field(repr=False)

    def at(self, index: int) -> float | None:
        """When a line was printed, by our clock; a line without a time counts as the member's end."""
        stamp = self.member.lines[index][0]
        return self.member.ours(stamp if stamp is not None else self.member.finished_at)

    def last(self, kind: MilestoneKind) -> int | None:
        """Index of the last line of a kind."""
        return next((index for index, seen in reversed(self.milestones) if seen.kind is kind), None)


def _read(member: MemberEvidence) -> _Read:
    texts = tuple(text for _, text in member.lines)
    told = ((index, milestone(text)) for index, text in enumerate(texts))
    return _Read(
        member=member,
        matches=scan(texts),
        milestones=tuple((index, seen) for index, seen in told if seen is not None),
        texts=texts,
    )


def _hosts(reads: Iterable[_Read], server: int) -> int:
    return len({read.member.host for read in reads if read.member.server == server})


def _served(reads: Iterable[_Read]) -> Mapping[int, float]:
    """Servers that served, and when they last began to."""
    times: dict[int, float] = {}
    for read in reads:
        index = read.last(MilestoneKind.SERVING)
        at = read.at(index) if index is not None else None
        if at is not None:
            times[read.member.server] = max(at, times.get(read.member.server, at))
    return times


def _causes(
    read: _Read, reads: Sequence[_Read], several: set[int], served: Mapping[int, float]
) -> Iterable[Cause]:
    """What is wrong in a member. What was printed before its server served did not stop it."""
    member = read.member
    serving = read.last(MilestoneKind.SERVING)
    for match in read.matches:
        if match.signature.several_hosts and member.server not in several:
            continue
        at = read.at(match.index)
        began = served.get(member.server)
        if (serving is not None and match.index < serving) or (
            at is not None and began is not None and at < began
        ):
            continue
        group = match.signature.group
        if group == "MEM_WEIGHTS":
            reached = _reached(reads, read, match.index, at)
            group = kind_of_exhaustion(read.texts[max(0, match.index - 200) : match.index], reached)
        yield cause_of(
            member, group, weight=match.signature.weight, at=at, line=match.text, figures=dict(match.figures)
        )
    drained = any(match.signature.group == "RAY_STOP_KILLED" for match in read.matches)
    for cause in states_of(member):
        killed = cause.group == "RUN_EXIT" and cause.figures.get("exit_code") == 137
        yield replace(cause, group="RAY_STOP_KILLED") if killed and drained else cause


def _reached(reads: Iterable[_Read], own: _Read, index: int, at: float | None) -> MilestoneKind | None:
    """How far the server of a line was when it was printed."""
    kinds = [seen.kind for where, seen in own.milestones if where < index]
    for read in reads:
        if at is not None and read is not own and read.member.server == own.member.server:
            kinds += [seen.kind for where, seen in read.milestones if (read.at(where) or at) < at]
    return max(kinds, key=lambda kind: kind.place, default=None)


def _root(causes: Sequence[Cause], reads: Sequence[_Read]) -> Cause | None:
    """The earliest certain cause, else the earliest likely one, else what nobody recognised."""
    stopped = [cause for cause in causes if cause.group == "RUN_EXIT" and cause.weight is Weight.LIKELY]
    certain = [cause for cause in causes if cause.weight is Weight.ROOT]
    probable = [cause for cause in causes if cause.weight is Weight.LIKELY and cause not in stopped]
    first = min(certain, key=_time, default=None) or min(probable, key=_before_waiting, default=None)
    if first is not None and first.group not in _WAITING:
        return first
    # A silent death, or a likely cause, explains why somebody waited in vain.
    explained = {(cause.host, cause.container) for cause in (*certain, *probable, *stopped)}
    silent = [
        read
        for read in reads
        if read.member.ended
        and read.member.exit_code
        and (read.member.host, read.member.container) not in explained
        and (first is None or _end(read) <= _time(first))
    ]
    earlier = [
        cause
        for cause in probable
        if first is not None and cause.group not in _WAITING and _time(cause) < _time(first)
    ]
    if silent or earlier:
        dead, told = min(silent, key=_end, default=None), min(earlier, key=_time, default=None)
        if dead is not None and (told is None or _end(dead) < _time(told)):
            return _unknown(dead)
        return told
    if first is not None:
        return first
    followed = min((cause for cause in causes if cause.weight is Weight.SECONDARY), key=_time, default=None)
    if followed is not None:
        return next(_unknown(read) for read in reads if _is_of(followed, read))
    return min(stopped, key=_time, default=None)


def _is_of(cause: Cause, read: _Read) -> bool:
    return (cause.host, cause.container) == (read.member.host, read.member.container)


def _before_waiting(cause: Cause) -> tuple[bool, float]:
    return cause.group in _WAITING, _time(cause)


def _time(cause: Cause) -> float:
    """Order in time; what has no time comes last, in the order it was read."""
    return float("inf") if cause.at is None else cause.at


def _end(read: _Read) -> float:
    at = read.member.ours(read.member.finished_at)
    return float("inf") if at is None else at


def _is_later(cause: Cause, root: Cause) -> bool:
    """What followed: not the guesses of before, nor that a member was stopped afterwards."""
    if cause.group == "RUN_EXIT" and cause.weight is Weight.LIKELY:
        return False
    return cause.weight in (Weight.ROOT, Weight.SECONDARY) or _time(cause) >= _time(root)


def _first_of_each(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """The earliest of each kind in each member, in order of time."""
    firsts: dict[tuple[str, str, str], Cause] = {}
    for cause in sorted(causes, key=_time):
        firsts.setdefault((cause.host, cause.container, cause.group), cause)
    return tuple(firsts.values())


_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]{0,120}\.)?[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit|Fault|Timeout|Expired|Denied)\b(?::|$)"
)


def _unknown(read: _Read) -> Cause:
    """A failure nobody has described yet: its last exception, its last lines, its exit code."""
    followed = {match.index for match in read.matches if match.signature.weight is Weight.SECONDARY}
    said: list[str] = []
    for text in reversed(read.texts[-2000:]):
        line = strip(text).strip()
        if line and not _is_talk(text):
            said.append(line)
        if len(said) == 5:
            break
    exception = ""
    at = read.member.ours(read.member.finished_at)
    for index in range(len(read.texts) - 1, max(-1, len(read.texts) - 5000), -1):
        line = strip(read.texts[index]).strip()
        if index not in followed and _EXCEPTION.match(line):
            exception, at = line, read.at(index) or at
            break
    code = read.member.exit_code
    cause = cause_of(
        read.member,
        "UNKNOWN",
        weight=Weight.ROOT,
        at=at,
        line=exception,
        figures={} if code is None else {"exit_code": code, "meaning": meaning(code)},
    )
    return replace(cause, figures={**cause.figures, "lines": [shown(line) for line in reversed(said)]})


def _is_talk(line: str) -> bool:
    return level(line) in ("DEBUG", "INFO") and "Error" not in line


def _silence(reads: Sequence[_Read], served: Mapping[int, float], now: float | None) -> Cause | None:
    """A server whose members all run, is not ready, and has said nothing for long: where it stopped tells why."""
    if now is None:
        return None
    for server in sorted({read.member.server for read in reads} - set(served)):
        own = [read for read in reads if read.member.server == server]
        times = [
            at
            for read in own
            for index in range(len(read.texts))
            for at in [read.at(index)]
            if at is not None
        ]
        if not times or now - max(times) < SILENT_SECONDS or any(read.member.ended for read in own):
            continue
        kinds = [(seen.kind, read, index) for read in own for index, seen in read.milestones]
        if not kinds:
            continue
        kind, read, index = max(kinds, key=lambda item: item[0].place)
        group = {
            MilestoneKind.NCCL: "NCCL_P2P_HANG",
            MilestoneKind.DISTRIBUTED: "NET_RDV_HANG",
            MilestoneKind.PLACEMENT_GROUP: "RAY_PG",
        }.get(kind, "RUN_SILENT_HANG")
        return cause_of(
            read.member,
            group,
            weight=Weight.LIKELY,
            at=max(times),
            line=strip(read.texts[index]),
            figures={"silent_seconds": round(now - max(times)), "milestone": kind.value},
        )
    return None
