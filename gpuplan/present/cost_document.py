"""Money and energy as JSON: part of every candidate, null without prices and power."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuplan.domain.cost import HOURS_A_MONTH, Cost, Ranged, TokenCost


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MillionTokensDocument:
    """A million output tokens while `users` users are answered at once; ranges are those of the throughput."""

    users: int
    context: int
    money: float | None
    money_low: float | None
    money_high: float | None
    kwh: float | None
    kwh_low: float | None
    kwh_high: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CostDocument:
    """What a placement costs and draws, by the prices and the power of the inventory; null is unknown."""

    currency: str | None
    per_hour: float | None
    per_month: float | None
    """Of 730 hours."""
    gpus_per_hour: float | None
    hosts_per_hour: float | None
    """The share of each host by its GPUs taken."""
    energy_per_hour: float | None
    """Part of `per_hour` where a price of the kilowatt-hour is given."""
    gpus: float
    kilowatts: float | None
    """From the grid under full load: kilowatt-hours of each hour."""
    kwh_per_month: float | None
    energy_basis: str | None
    """computed from the watts given, or assumed: the data sheets' of the GPUs."""
    million_output_tokens: tuple[MillionTokensDocument, ...]
    inputs: Mapping[str, Any]
    unknown: tuple[str, ...]
    """Why a figure is null."""


def cost_document(cost: Cost | None) -> CostDocument | None:
    """The cost as data."""
    if cost is None:
        return None
    money, energy = cost.money, cost.energy
    return CostDocument(
        currency=None if money is None else money.currency,
        per_hour=None if money is None else _rounded(money.per_hour),
        per_month=None if money is None else _rounded(money.per_hour * HOURS_A_MONTH),
        gpus_per_hour=None if money is None else _rounded(money.gpus),
        hosts_per_hour=None if money is None else _rounded(money.hosts),
        energy_per_hour=None if money is None else _rounded(money.energy),
        gpus=round(cost.gpus, 3),
        kilowatts=None if energy is None else _rounded(energy.kilowatts),
        kwh_per_month=None if energy is None else _rounded(energy.kilowatts * HOURS_A_MONTH),
        energy_basis=None if energy is None else energy.basis.value,
        million_output_tokens=tuple(_million(one) for one in cost.tokens),
        inputs=dict(cost.inputs),
        unknown=cost.unknown,
    )


def _million(tokens: TokenCost) -> MillionTokensDocument:
    money, kwh = _span(tokens.money), _span(tokens.kilowatt_hours)
    return MillionTokensDocument(
        users=tokens.users,
        context=tokens.context,
        money=money[0],
        money_low=money[1],
        money_high=money[2],
        kwh=kwh[0],
        kwh_low=kwh[1],
        kwh_high=kwh[2],
    )


def _span(span: Ranged | None) -> tuple[float | None, float | None, float | None]:
    if span is None:
        return None, None, None
    return _rounded(span.value), _rounded(span.low), _rounded(span.high)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
