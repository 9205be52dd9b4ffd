"""What a start taught, for people: predicted beside printed, what it will be used for, what was missing."""

from collections.abc import Iterator, Sequence

from gpuplan.domain.calibration import Compared, Ending, Lesson, Quantity
from gpuplan.engine.start_facts import StartFacts
from gpuplan.planning.learned import SERVER, Gap, Learned, Missing, Use
from gpuplan.planning.likeness import day
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, wrapped
from gpuplan.present.numbers import count, gib
from gpuplan.units import plural

NAMES = {
    Quantity.LOADING: "loading",
    Quantity.ACTIVATION: "activation",
    Quantity.NON_TORCH: "non-torch",
    Quantity.GRAPHS: "CUDA graphs",
    Quantity.WORKING: "these together",
    Quantity.KV_CACHE: "KV cache",
    Quantity.TOKENS: "KV tokens",
    Quantity.CONCURRENCY: "concurrency",
}
CHECKS = {
    "free_memory": "too little memory was free",
    "out_of_memory": "it ran out of memory",
    "no_kv_room": "nothing was left for the KV cache",
    "too_long": "the KV cache was too small for one request",
}
USES = {
    Use.SAME_START: "the same start on this kind of card: all of its memory, as measured",
    Use.LOADING: "this model, divided in this way, with other limits or on other cards: what loading takes",
    Use.NON_TORCH: "other models on this kind of card: memory outside the allocator, once two models agree",
}


def learned_text(learned: Learned, width: int) -> Lines:
    """One start in lines of at most `width` cells."""
    lines: list[Line] = [*_title(learned, width)]
    shown = [(stage, term) for stage, term in learned.compared if term.actual is not None]
    if shown:
        several = len({stage for stage, _ in shown if stage != SERVER}) > 1
        lines += _table(shown, several=several)
    if learned.facts.line is not None:
        lines += wrapped(learned.facts.line, width, first="  it said: ", role=Role.DIM)
    for one in learned.missing:
        said, way = missing_words(one)
        lines += wrapped(said, width, first="  missing: ", role=Role.WARNING)
        if way:
            lines += wrapped(way, width, first="    hint: ", role=Role.HINT)
    lines += _result(learned, width)
    return tuple(lines)


def _is_other(learned: Learned) -> bool:
    """Whether it is not the log of a start at all."""
    return any(one.gap is Gap.START for one in learned.missing)


def _title(learned: Learned, width: int) -> Lines:
    facts = learned.facts
    if _is_other(learned):
        return wrapped(learned.origin, width, rest="  ", role=Role.TITLE)
    parts = [learned.origin, what_words(learned), ending_words(facts)]
    return wrapped(": ".join(part for part in parts if part), width, rest="  ", role=Role.TITLE)


def what_words(learned: Learned) -> str:
    """`Qwen/Qwen3-32B on NVIDIA H100 80GB HBM3, vLLM 0.11.0, TP 2`, as far as it is known."""
    facts, question = learned.facts, learned.question
    model = question.profile.name if question is not None else facts.model or "a model that is not named"
    card = learned.lesson.start.gpu if learned.lesson is not None else facts.gpu or ""
    version = str(question.version) if question is not None else str(facts.version or "of an unknown release")
    shape = f", TP {question.parallelism.tensor}" if question and question.parallelism.tensor > 1 else ""
    stages = f", PP {question.parallelism.pipeline}" if question and question.parallelism.pipeline > 1 else ""
    where = f" on {card}" if card and card != "custom" else ""
    return f"{model}{where}, vLLM {version}{shape}{stages}"


def ending_words(facts: StartFacts) -> str:
    """`it serves`, `it failed: …`."""
    match facts.ending:
        case Ending.SERVES:
            return "it serves"
        case Ending.FAILED if facts.check is not None:
            return f"it failed: {CHECKS[facts.check.value]}"
        case Ending.FAILED:
            return "it failed"
        case Ending.UNKNOWN:
            return "the log ends before it serves"


def _table(shown: Sequence[tuple[int, Compared]], *, several: bool) -> Iterator[Line]:
    name = 18 if several else 16
    header = f"  {'':<{name}}{'predicted':>12}{'likely range':>20}{'printed':>12}{'difference':>13}"
    yield line(Span(header, Role.DIM))
    for stage, term in shown:
        title = f"{NAMES[term.quantity]} {stage}" if several and stage != SERVER else NAMES[term.quantity]
        within = term.low <= (term.actual or 0) <= term.high or term.low == term.high
        yield line(
            f"  {padded(title, name)}{_value(term, term.predicted):>12}{_range(term):>20}"
            f"{_value(term, term.actual or 0):>12}",
            Span(f"{_signed(term):>13}", Role.PLAIN if within else Role.WARNING),
        )


def _value(term: Compared, value: int) -> str:
    match term.quantity:
        case Quantity.TOKENS:
            return count(value)
        case Quantity.CONCURRENCY:
            return f"{value / 1000:,.2f}"
        case _:
            return gib(value)


def _range(term: Compared) -> str:
    if term.low == term.high:
        return ""
    return f"{gib(term.low).removesuffix(' GiB')} – {gib(term.high)}"


def _signed(term: Compared) -> str:
    difference = term.difference or 0
    if difference == 0:
        return "none"
    sign = "+" if difference > 0 else "−"
    return f"{sign}{_value(term, abs(difference))}"


def _result(learned: Learned, width: int) -> Iterator[Line]:
    if learned.lesson is None:
        yield from wrapped("nothing is kept of it", width, first="  ", role=Role.WARNING)
        return
    if learned.unwritten is not None:
        yield from wrapped(f"not kept: {learned.unwritten}", width, first="  ", role=Role.BAD)
    elif learned.kept is not None:
        yield from wrapped(f"kept as {learned.lesson.id}", width, first="  ")
    else:
        yield from wrapped("not kept, as asked", width, first="  ")
    for use in learned.uses:
        yield from wrapped(USES[use], width, first="  corrects ", rest="    ")
    if not learned.uses:
        yield from wrapped("it corrects nothing yet: no term of it was printed", width, first="  ")


def missing_words(missing: Missing) -> tuple[str, str]:
    """What is missing, and how it is given."""
    detail = visible(missing.detail)[:300]
    match missing.gap:
        case Gap.MODEL:
            which = f"the model: {detail}" if detail else "the model: the log does not name it"
            return which, "give its id, directory or config.json: --model MODEL"
        case Gap.VERSION:
            which = f"vLLM {detail} is older than the rules known here" if detail else "the version of vLLM"
            return which, "" if detail else "--vllm-version X.Y.Z"
        case Gap.ARGUMENTS:
            said = "the log cuts off their end" if detail else "the log does not show them"
            return (
                f"the arguments: {said}, the comparison takes defaults",
                "end the command with them, as in: -- --tensor-parallel-size 2 (with: -- --seed 0 if there were none)",
            )
        case Gap.DOUBT:
            return (
                f"agreement with the card named: {detail}",
                "name the card the log is of (--gpu NAME or NAME=SIZE), and behind -- arguments that the log does not show",
            )
        case Gap.START:
            return (
                "a start of vLLM: no line of one is in there",
                "give the server's log from its first line on",
            )
        case Gap.WRONG:
            return detail, visible(missing.way)
        case Gap.REFUSED:
            return (
                f"arguments that are not understood and left out: {detail}",
                "end the command with them: -- ARGUMENTS",
            )
        case Gap.CARD:
            return "the card: the log does not name it, so only what loading takes is used", "--gpu NAME"
        case Gap.TOTAL:
            return (
                "the memory of the card: budget and KV cache cannot be compared",
                "--gpu NAME, for example --gpu H100-80GB or --gpu NAME=23.6GiB",
            )
        case Gap.ARCHITECTURE:
            return (
                f"certainty about the model: the log says {detail}",
                "give the model that was started: --model MODEL",
            )
        case Gap.SIZES:
            return f"a way to divide the model so: {detail}", "give the model that was started: --model MODEL"
        case Gap.STAGES:
            return (
                f"which of the {detail} pipeline stages printed what",
                "give the whole log, with its prefixes",
            )
        case Gap.PLATFORM:
            return f"a GPU: it ran on {detail}", ""
        case Gap.MEASURES:
            return "figures: the log ends before the engine printed what it measured", ""


def lessons_text(lessons: Sequence[Lesson], path: str, unread: int, width: int) -> Lines:
    """Every lesson in a line, newest first."""
    lines: list[Line] = []
    if lessons:
        cards = [visible(one.start.gpu).removeprefix("NVIDIA ") for one in lessons]
        room = max(20, width - 44 - min(18, max(map(len, (*cards, "card")))))
        header = f"{'lesson':<18}{'learned':<12}{padded('model', room)}{'vLLM':<9}{'TP':<4}card"
        lines.append(line(Span(header, Role.DIM)))
        for one, card in zip(lessons, cards, strict=True):
            start = one.start
            text = (
                f"{padded(one.id, 18)}{day(one.at):<12}{padded(visible(start.model), room - 1)} {start.version:<9}"
                f"{start.tensor:<4}{card}"
            )
            lines.append(line(padded(text, width).rstrip()))
    lines += [EMPTY] if lessons else []
    lines += wrapped(f"{plural(len(lessons), 'start')} in {path}", width)
    if unread:
        said = (
            f"{plural(unread, 'line')} of it cannot be read and {'is' if unread == 1 else 'are'} passed over"
        )
        lines += wrapped(said, width, role=Role.WARNING)
    return tuple(lines)
