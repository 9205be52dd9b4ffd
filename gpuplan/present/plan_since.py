"""Why a plan is not what it was: the answers, what accounts for the difference, and all that is different."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpuplan.planning.answers import Answer, Cause, Comparison, Conclusion, Level, concluded, level
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, visible, wrapped
from gpuplan.present.numbers import count, gpu_range
from gpuplan.present.placement_text import parallelism_words
from gpuplan.present.plan_differences import MOST, Difference, all_differences
from gpuplan.present.strategy_table import NAMES
from gpuplan.units import plural

TITLES = {
    "asked": "Asked otherwise",
    "model": "The model",
    "fleet": "The fleet",
    "rules": "Measurements and rules",
    "findings": "Findings",
    "answer": "The answer",
}


KINDS = {
    "asked": "what was asked",
    "model": "the model",
    "fleet": "the fleet",
    "rules": "measurements or rules",
}
KEEP = (
    "keep the fleet beside the plan (`gpuplan probe --save fleet.json`): with --since plan.json --since fleet.json each "
    "change is taken back"
)
AGAIN = "`gpuplan plan MODEL --since PLAN` plans again and takes changes back one by one"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSince:
    """Two plans compared, in words."""

    before: str
    """What the former one was read from."""
    after: str
    answers: tuple[Answer, Answer]
    conclusion: Conclusion
    causes: tuple[tuple[Cause, str], ...]
    """With what each is called; those that account for it first."""
    differences: tuple[Difference, ...]
    ways: tuple[str, ...] = ()
    """What would tell more."""


def told_since(comparison: Comparison) -> PlanSince:
    """A comparison with all differences, and what accounts for them."""
    differences = tuple(all_differences(comparison))
    kinds = {one.kind for one in differences}
    left = [Cause(kind=kind) for kind in KINDS if kind in kinds and kind not in comparison.turned]
    before, after = comparison.answers
    conclusion, causes = concluded(before, after, comparison.causes, left, comparison.together)
    return PlanSince(
        before=comparison.before,
        after=comparison.after,
        answers=comparison.answers,
        conclusion=conclusion,
        causes=tuple((one, _called(one, comparison, differences)) for one in causes),
        differences=differences,
        ways=tuple(_ways(comparison, conclusion, causes)),
    )


def _ways(comparison: Comparison, conclusion: Conclusion, causes: tuple[Cause, ...]) -> Iterator[str]:
    is_open = conclusion in (Conclusion.OPEN, Conclusion.HIDDEN)
    if comparison.after:
        if is_open:
            yield AGAIN
    elif comparison.fleets is None and (is_open or any(one.kind == "fleet" for one in causes)):
        yield KEEP


def _called(cause: Cause, comparison: Comparison, differences: Sequence[Difference]) -> str:
    """`context 8,000 → 16,000`, `host h1 (GPU 0: …)`, `the fleet (… and 3 more differences)`."""
    own = [one for one in differences if one.kind == cause.kind]
    name = KINDS[cause.kind]
    if cause.key in ("reference", "no_calibration") and cause.kind != "asked":
        if cause.kind == "rules":
            return "what was measured since"
        asked = [one for one in differences if one.kind == "asked"]
        return next((one.words for one in asked if one.key == "model"), name)
    if cause.key:
        own = [one for one in own if one.key == cause.key]
        name = f"host {cause.key}"
    if cause.kind == "asked" and len(own) == 1:
        return own[0].words
    if cause.kind == "fleet" and not cause.key and comparison.fleets is not None:
        hosts = dict.fromkeys(one.key for one in own)
        return f"the fleet ({plural(len(hosts), 'host')} changed)"
    if not own:
        return name
    more = f" and {plural(len(own) - 1, 'more difference')}" if len(own) > 1 else ""
    return f"{name} ({own[0].words.removeprefix(f'{cause.key}: ')}{more})"


def since_text(since: PlanSince, width: int) -> Lines:
    """The answers, the causes, then every difference under a title."""
    return tuple(_lines(since, width))


def since_document(since: PlanSince) -> dict[str, Any]:
    """For scripts."""
    differs = level(*since.answers)
    return {
        "before": since.before,
        "after": since.after,
        "changed": None if differs is None else differs.value,
        "before_answer": _document(since.answers[0]),
        "after_answer": _document(since.answers[1]),
        "conclusion": since.conclusion.value,
        "causes": [
            {
                "kind": one.kind,
                "words": words,
                "restores": one.restores,
                "answer_without_it": None if one.then is None else answer_words(one.then),
            }
            for one, words in since.causes
        ],
        "differences": [{"kind": one.kind, "words": one.words} for one in since.differences],
    }


def _document(answer: Answer) -> dict[str, Any]:
    return {
        "strategy": None if answer.strategy is None else answer.strategy.value,
        "gpus": [f"{host}:{','.join(map(str, indexes))}" for host, indexes in answer.place],
        "context": answer.context,
        "words": answer_words(answer),
    }


def answer_words(answer: Answer) -> str:
    """`single GPU on a:0 (TP1), context 3,744`; `nothing fits`."""
    if answer.refusal is not None:
        return f"no plan: {answer.refusal}"
    if answer.strategy is None:
        return "nothing is recommended"
    place = ", ".join(f"{host}:{gpu_range(indexes)}" for host, indexes in answer.place)
    words = f"{NAMES[answer.strategy]} on {place}"
    if answer.shape is not None:
        words += f" ({parallelism_words(answer.shape)})"
    return words if answer.context is None else f"{words}, context {count(answer.context)}"


def _lines(since: PlanSince, width: int) -> Iterator[Line]:
    names = f"{since.before} → {since.after}" if since.after else f"since {since.before}"
    yield line(Span(visible(names), Role.TITLE))
    yield from _headline(since, width)
    for text, role in _why(since):
        yield from wrapped(text, width, first="  ", rest="    ", role=role)
    for way in since.ways:
        yield from wrapped(way, width, first="  hint: ", role=Role.HINT)
    for kind, title in TITLES.items():
        own = [one for one in since.differences if one.kind == kind]
        if own:
            yield EMPTY
            yield line(Span(title, Role.TITLE))
            yield from _differences(own, width)


def _differences(differences: Sequence[Difference], width: int) -> Iterator[Line]:
    for one in differences[:MOST]:
        yield from wrapped(one.words, width, first="  ", rest="    ", role=one.role)
    if len(differences) > MOST:
        text = f"… {plural(len(differences) - MOST, 'more difference')} (all in -o json)"
        yield from wrapped(text, width, first="  ", role=Role.DIM)


def _headline(since: PlanSince, width: int) -> Iterator[Line]:
    before, after = since.answers
    match level(before, after):
        case None if not since.differences:
            text, role = "Nothing is different.", Role.PLAIN
        case None:
            text, role = f"The answer is the same: {answer_words(after)}", Role.GOOD
        case Level.VERDICTS:
            text = (
                f"The recommendation is the same: {answer_words(after)}; verdicts of other strategies changed"
            )
            role = Role.PLAIN
        case _:
            text = f"The answer was: {answer_words(before)}. It is: {answer_words(after)}"
            role = Role.GOOD if after.fits and not before.fits else Role.WARNING
            role = Role.BAD if before.fits and not after.fits else role
    yield from wrapped(text, width, first="  ", rest="    ", role=role)


def _why(since: PlanSince) -> Iterator[tuple[str, Role]]:
    """What accounts for the difference, how that is known, and what does not."""
    left = ", ".join(words for one, words in since.causes if one.restores is None)
    match since.conclusion:
        case Conclusion.SAME:
            return
        case Conclusion.FOUND:
            for one, words in since.causes:
                if one.restores and one.then is not None:
                    yield (
                        f"because of {words}: without it the answer would be {answer_words(one.then)}",
                        Role.PLAIN,
                    )
        case Conclusion.TOGETHER:
            yield (
                "because of several changes together: taken back one by one none of them brings it back",
                Role.PLAIN,
            )
        case Conclusion.LEFT:
            yield f"because of {left}: nothing else that is different accounts for it", Role.PLAIN
        case Conclusion.OPEN:
            yield f"because of one of these, or several: {left}", Role.PLAIN
        case Conclusion.HIDDEN:
            yield "nothing that is recorded accounts for it", Role.PLAIN
    for one, words in since.causes:
        if one.restores is False and one.then is not None:
            yield f"without {words} alone it would be {answer_words(one.then)}", Role.DIM
