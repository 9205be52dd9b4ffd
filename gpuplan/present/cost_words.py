"""Money and energy in words: a line for plans, the whole account for one candidate."""

from collections.abc import Iterator

from gpuplan.domain.cost import HOURS_A_MONTH, Cost, Ranged, TokenCost
from gpuplan.domain.fleet import Basis
from gpuplan.domain.plan import Candidate
from gpuplan.present.document import Line, Role, wrapped
from gpuplan.present.folding import Part
from gpuplan.present.numbers import count, tokens
from gpuplan.units import plural


def amount(number: float) -> str:
    """`3,821`, `5.11`, `0.0042`: cents where they count, two digits of what is smaller."""
    if number >= 999.995:
        return count(number)
    return f"{number:.2f}" if number >= 0.0995 or number == 0 else f"{number:.2g}"


def cost_line(candidate: Candidate) -> str | None:
    """An hour, a month, kilowatts and a million output tokens in one sentence; None where nothing is priced."""
    cost = candidate.cost
    if cost is None:
        return None
    words = []
    if cost.money is not None:
        an_hour, currency = cost.money.per_hour, cost.money.currency
        words.append(
            f"costs {amount(an_hour)} {currency} an hour, {amount(an_hour * HOURS_A_MONTH)} {currency} a month"
        )
    if cost.energy is not None:
        basis = ", watts of the data sheet" if cost.energy.basis is Basis.ASSUMED else ""
        words.append(f"draws up to {amount(cost.energy.kilowatts)} kW{basis}")
    if cost.tokens:
        words.append(_tokens(cost, cost.tokens[0]))
    words += cost.unknown
    return "; ".join(word for word in words if word)


def cost_lines(candidate: Candidate, width: int) -> Iterator[Line]:
    """`cost_line` in lines of at most `width` cells."""
    text = cost_line(candidate)
    if text:
        yield from wrapped(text, width, first="  ", rest="    ")


def cost_parts(candidate: Candidate, width: int) -> tuple[Part, ...]:
    """The line, which opens on its account; nothing where nothing is priced."""
    cost = candidate.cost
    if cost is None:
        return ()
    account = Part(key=("cost", "account"), lines=tuple(account_lines(cost, width - 4)))
    return (Part(key=("cost", "line"), lines=tuple(cost_lines(candidate, width - 2)), below=(account,)),)


def account_lines(cost: Cost, width: int) -> Iterator[Line]:
    """What the hour is made of, other loads, then what went in."""
    money = cost.money
    if money is not None:
        named = (("GPUs", money.gpus), ("hosts", money.hosts), ("energy", money.energy))
        parts = [f"{amount(value)} for {name}" for name, value in named if value is not None]
        yield from wrapped(f"an hour in {money.currency}: {', '.join(parts)}", width, first="  ", rest="    ")
    for other in cost.tokens[1:]:
        text = _tokens(cost, other)
        if text:
            yield from wrapped(text, width, first="  ", rest="    ")
    yield from wrapped(
        "GPUs count whole, hosts by the share of their GPUs taken; kilowatts are those of full load, so that less is "
        "drawn in idle hours; a million tokens is for a load that never ends, its range that of tokens per second",
        width,
        first="  ",
        rest="    ",
        role=Role.DIM,
    )
    for name, value in cost.inputs:
        shown = value if isinstance(value, str) else f"{value:g}"
        yield from wrapped(f"{name}: {shown}", width, first="    ", rest="      ", role=Role.DIM)


def _tokens(cost: Cost, told: TokenCost) -> str:
    """`a million output tokens: 18.40 USD (14.15 to 30.67) and 7.00 kWh (5.38 to 11.67) with 1 user at 32,768 tokens`."""
    parts = []
    if told.money is not None and cost.money is not None:
        parts.append(_span(told.money, cost.money.currency))
    if told.kilowatt_hours is not None:
        parts.append(_span(told.kilowatt_hours, "kWh"))
    if not parts:
        return ""
    load = f"with {plural(told.users, 'user')} at {tokens(told.context)}"
    return f"a million output tokens: {' and '.join(parts)} {load}"


def _span(span: Ranged, unit: str) -> str:
    return f"{amount(span.value)} {unit} ({amount(span.low)} to {amount(span.high)})"
