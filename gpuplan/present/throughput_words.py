"""Tokens per second in words: one line for plans and estimates, the whole account for one candidate."""

from collections.abc import Iterator

from gpuplan.domain.plan import Candidate
from gpuplan.domain.throughput import Bound, DecodeSpeed, NoThroughput, Throughput
from gpuplan.present.document import Line, Role, wrapped
from gpuplan.present.folding import Part
from gpuplan.present.numbers import count, tokens

BOUNDS = {
    Bound.MEMORY: "memory bandwidth",
    Bound.COMPUTE: "compute",
    Bound.LINKS: "the links between GPUs",
    Bound.LAUNCHES: "kernel launches and the host",
    Bound.OFFLOAD: "reading offloaded weights",
}


def rate(number: float) -> str:
    """`1,234`, `38`, `4.2`: three digits at most count."""
    if number < 9.95:
        return f"{number:.1f}"
    return count(float(f"{number:.3g}"))


def seconds(number: float) -> str:
    """`85 ms`, `3.4 s`, `120 s`."""
    if number < 0.9995:
        return f"{max(1, round(number * 1000))} ms"
    return f"{number:.1f} s" if number < 99.95 else f"{count(number)} s"


def error_words(told: Throughput) -> str:
    """`−40 to +30 %`."""
    return f"−{round((1 - told.low) * 100)} to +{round((told.high - 1) * 100)} %"


def speed_words(speed: DecodeSpeed) -> str:
    """`38 tokens/s for each of 8 users at 32,768 tokens`."""
    if speed.users == 1:
        return f"{rate(speed.per_user)} tokens/s for one user at {tokens(speed.context)}"
    return (
        f"{rate(speed.per_user)} tokens/s for each of {count(speed.users)} users at {tokens(speed.context)}, "
        f"{rate(speed.total)} in all"
    )


def throughput_line(candidate: Candidate) -> str | None:
    """The estimate in one line with what bounds it, its error and basis; None where it was not asked."""
    match candidate.throughput:
        case Throughput() as told:
            return (
                f"about {speed_words(told.decode)}; bound by {BOUNDS[told.decode.bound]}; "
                f"{error_words(told)}, {told.basis.value}"
            )
        case NoThroughput(reason=reason):
            return f"tokens per second unknown: {reason}"
        case None:
            return None


def throughput_lines(candidate: Candidate, width: int) -> Iterator[Line]:
    """`throughput_line` in lines of at most `width` cells."""
    text = throughput_line(candidate)
    if text is not None:
        yield from wrapped(text, width, first="  ", rest="    ")


def speed_parts(candidate: Candidate, width: int) -> tuple[Part, ...]:
    """The line, which opens on its account; nothing where it was not asked."""
    lines = tuple(throughput_lines(candidate, width - 2))
    if not lines:
        return ()
    told = candidate.throughput
    account = tuple(account_lines(told, width - 4)) if isinstance(told, Throughput) else ()
    below = (Part(key=("speed", "account"), lines=account),) if account else ()
    return (Part(key=("speed", "line"), lines=lines, below=below),)


def account_lines(told: Throughput, width: int) -> Iterator[Line]:
    """Other loads, the prompt, then what the figures rest on."""
    for other in told.others:
        yield from wrapped(
            f"{speed_words(other)}; bound by {BOUNDS[other.bound]}", width, first="  ", rest="    "
        )
    text = (
        f"prompts are read at up to {rate(told.prefill_tokens_per_second)} tokens/s, bound by {BOUNDS[told.prefill_bound]}; "
        f"the first token of one of {tokens(told.decode.context)} comes after {seconds(told.first_token_seconds)} at least"
    )
    yield from wrapped(text, width, first="  ", rest="    ")
    for note in told.notes:
        yield from wrapped(note, width, first="  ", rest="    ", role=Role.DIM)
    yield from wrapped(f"tokens/s of a user = {told.formula}", width, first="  ", rest="    ", role=Role.DIM)
    for name, value in told.inputs:
        yield from wrapped(f"{name}: {_input(value)}", width, first="    ", rest="      ", role=Role.DIM)
    yield from wrapped(told.source, width, first="  source: ", rest="    ", role=Role.DIM)


def _input(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return count(value) if isinstance(value, int) else f"{value:g}"
