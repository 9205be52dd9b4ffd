"""A question under way, in a few lines: the model, what is set, what became of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuplan.domain.plan import Plan
from gpuplan.present.document import Line, Lines, Role, Span, line, visible
from gpuplan.present.plan_text import model_words
from gpuplan.present.strategy_table import RECOMMENDED, answer_line


def model_line(reference: str, model: Mapping[str, Any] | None, key: str) -> Line:
    """The model that is asked about, and what is known of it; `key` chooses another."""
    if not reference:
        return line(Span("No model is chosen", Role.WARNING), Span(f"  {key}: choose one", Role.DIM))
    words = f"  {model_words(model)}" if model is not None else ""
    return line(Span(visible(reference), Role.TITLE), Span(words, Role.DIM))


def summary_line(set_words: Sequence[str], key: str) -> Line:
    """Every knob that is turned, and the key that shows them all."""
    words = visible(" · ".join(set_words))
    return line(
        Span(f"{key}: knobs  ", Role.DIM), Span(words) if words else Span("all at their defaults", Role.DIM)
    )


def busy_line(reference: str, seconds: int, *, reading: bool) -> Line:
    """A plan that takes its time; `reading`: its model may have to be read first."""
    words = f"reading {visible(reference)}…" if reading else "planning…"
    return line(Span(f"{words} {seconds} s" if seconds else words, Role.TITLE))


def error_lines(message: str, hint: str | None) -> Lines:
    """Why there is no answer, and the way out."""
    first, *more = message.splitlines() or [""]
    lines = [line(Span(f"✗ {visible(first)}", Role.BAD))]
    lines += [line(Span(f"  {visible(row)}", Role.BAD)) for row in more]
    if hint:
        lines.append(line(Span(f"  hint: {visible(hint)}", Role.HINT)))
    return tuple(lines)


def old_line(reference: str | None) -> Line:
    """That what is shown answers an earlier question: about that model, where it is another one."""
    about = f" about {visible(reference)}" if reference else ""
    return line(Span(f"! old: the plan below answers the question before{about}", Role.WARNING))


def result_lines(plan: Plan, note: str) -> Lines:
    """The answer, and what was done last."""
    mark = f"{RECOMMENDED} " if plan.recommended is not None else ""
    answer = (Span(mark), *answer_line(plan)) if mark else answer_line(plan)
    return (answer, line(Span(visible(note), Role.DIM))) if note else (answer,)


def unread_line(waiting: str, error: str | None, hint: str | None) -> Lines:
    """That there is no fleet to plan on: it is being read, could not be, or has no host."""
    if error is not None:
        return error_lines(f"the fleet could not be read: {error}", hint)
    if waiting:
        return (line(Span(f"the fleet is being read: {waiting}", Role.TITLE)),)
    return (line(Span("there is no fleet yet", Role.WARNING)),)
