"""Several models placed together, for people: a line for each replica, what is left out, and the moves in order."""

from collections.abc import Iterator

from gpuplan.domain.fact import Severity
from gpuplan.planning.packing.answer import Answer, Copy, ModelAnswer, Move
from gpuplan.planning.packing.facts import places
from gpuplan.planning.packing.moves import Action, Reason
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, width_of, wrapped
from gpuplan.present.findings import word
from gpuplan.present.numbers import gib, listed, tokens
from gpuplan.present.packing_document import command_of, gpus_of
from gpuplan.present.placement_text import shape_words
from gpuplan.present.refusal_text import finding_lines
from gpuplan.units import plural

NAME_WIDTH = 20
MOST_KEPT = 8
"""Deployments that stay and are named."""

WHY = {
    Reason.NEW: "",
    Reason.MOVES: "instead of {old}",
    Reason.DETOUR: "on the way, instead of {old}",
}
STOPS = {
    Reason.MOVES: "its new place serves",
    Reason.SURPLUS: "more of it run than are asked for",
    Reason.DROPPED: "its GPUs are needed by models worth more",
    Reason.OTHERS_SERVE: "before its new place starts; its other replicas serve",
    Reason.DOWNTIME: "before its new place starts: it is down until then",
}


def packing_text(answer: Answer, width: int) -> Lines:
    """The whole answer in lines of at most `width` cells (80 and more)."""
    return tuple(_report(answer, width))


def _report(answer: Answer, width: int) -> Iterator[Line]:
    yield from _header(answer, width)
    yield EMPTY
    for model in answer.models:
        yield from _model(model, width)
    yield EMPTY
    for fact in answer.facts:
        if fact.severity is Severity.ERROR:
            yield from finding_lines(word(fact), width)
    yield from _moves(answer, width)
    for fact in answer.facts:
        if fact.severity is not Severity.ERROR:
            yield from finding_lines(word(fact), width)


def _header(answer: Answer, width: int) -> Iterator[Line]:
    placed = sum(model.placed for model in answer.models)
    of_all = plural(len(answer.models), "model")
    role = Role.GOOD if answer.complete else Role.BAD
    yield line(Span(f"{placed} of {of_all} placed" if not answer.complete else f"{of_all} placed", role))
    source = "declared" if answer.fleet_basis == "assumed" else answer.fleet_basis
    cost = answer.packing.cost
    fleet = f"{plural(answer.gpus, 'usable GPU')} on {plural(answer.hosts, 'host')} ({source})"
    proof = "; no packing does better" if answer.packing.optimal else ""
    yield from wrapped(
        f"{cost[1]} of {fleet} taken, {gib(cost[2])} of GPU memory{proof}", width, first="  ", role=Role.DIM
    )


def _model(model: ModelAnswer, width: int) -> Iterator[Line]:
    copies = "" if model.replicas == 1 else f", {model.replicas} replicas"
    what = f"{visible(model.reference)} (priority {model.priority}{copies})"
    name = padded(visible(model.name), max(NAME_WIDTH, min(width_of(visible(model.name)), width // 3)))
    rows = wrapped(what, width - width_of(name) - 1)
    yield line(Span(name, Role.TITLE), " ", *rows[0])
    for row in rows[1:]:
        yield line(" " * (width_of(name) + 1), *row)
    if not model.placed:
        yield line(Span("  not placed", Role.BAD))
    for copy in model.copies:
        yield from wrapped(_place(copy), width, first="  ", rest="    ")


def _place(copy: Copy) -> str:
    candidate = copy.candidate
    memory = candidate.memory
    claims = [gpu.claim_bytes for host in candidate.placement for gpu in host.gpus]
    share = f", utilization {copy.share:g}" if copy.share is not None else ""
    words = [
        " ".join(gpus_of(copy)),
        shape_words(candidate),
        f"{gib(max(claims))} a GPU{share}",
        *([f"context {tokens(memory.max_model_len)}"] if memory is not None and memory.max_model_len else []),
        f"{'stays' if copy.stays else 'new'}: {copy.deployment}",
    ]
    return visible(" · ".join(words))


def _moves(answer: Answer, width: int) -> Iterator[Line]:
    kept = [move.step.deployment for move in answer.moves if move.step.action is Action.KEEP]
    todo = [move for move in answer.moves if move.step.action is not Action.KEEP]
    if not todo and not kept:
        return
    yield line(Span("what to do, in this order" if todo else "nothing is to be done", Role.TITLE))
    if kept:
        yield from wrapped(f"{listed(kept, MOST_KEPT)}: left as it is", width, first="  ", role=Role.DIM)
    for number, move in enumerate(todo, 1):
        yield from _move(number, move, answer.inventory, width)
    yield EMPTY


def _move(number: int, move: Move, inventory: str | None, width: int) -> Iterator[Line]:
    step = move.step
    where = listed(places(step.cards))
    if step.action is Action.STOP:
        words = f"stop {step.deployment} on {where}: {STOPS.get(step.reason, step.reason.value)}"
        role = Role.WARNING if step.reason in (Reason.DROPPED, Reason.DOWNTIME) else Role.PLAIN
    else:
        why = WHY.get(step.reason, "").format(old=step.instead_of)
        words = f"start {step.deployment} on {where}" + (f", {why}" if why else "")
        role = Role.PLAIN
    yield from wrapped(words, width, first=f"  {number}. ", role=role)
    command = command_of(move, inventory)
    if command is not None:
        yield from wrapped(command, width, first="     ", rest="       ", role=Role.COMMAND)
