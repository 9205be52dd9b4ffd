"""Money and energy of a placement: whole GPUs, shares of hosts, the range of tokens per second carried over."""

from dataclasses import replace
from typing import Any

import pytest

from gpuplan.domain.cost import Cost
from gpuplan.domain.fleet import Basis, Fleet, Gpu, Host
from gpuplan.domain.plan import Candidate, Plan, StrategyName
from gpuplan.domain.tariff import Power, Price, Tariff
from gpuplan.domain.throughput import Throughput
from gpuplan.domain.workload import GpuSelection, Workload
from gpuplan.engine.arguments import parse
from gpuplan.engine.versions import version_of
from gpuplan.operations.cards import card_of
from gpuplan.planning.planner import plan
from gpuplan.planning.request import PlanRequest
from gpuplan.present.comparison import comparison
from gpuplan.present.cost_document import cost_document
from gpuplan.present.cost_words import amount, cost_line, cost_parts
from tests.fleets import gpu, host, of
from tests.unit.engine.test_throughput import DENSE

VERSION = version_of("0.33.0")
RENT = Price(gpu_hour=2.0, host_hour=0.8, currency="USD")
OWN = Power(host_watts=800, kwh_price=0.25, pue=1.5)


def planned(*hosts: Host, **workload: Any) -> Plan:
    return plan(
        PlanRequest(
            fleet=Fleet(hosts=hosts),
            profile=DENSE,
            workload=Workload(engine=parse([], version=VERSION), context=2048, **workload),
            version=VERSION,
            utilization=0.92,
            accelerators=card_of,
        )
    )


def with_tariff(seen: Host, price: Price | None = RENT, power: Power | None = OWN) -> Host:
    return replace(seen, tariff=Tariff(price=price, power=power))


def first(made: Plan, strategy: StrategyName = StrategyName.SINGLE_GPU) -> Candidate:
    return of(made, strategy).candidates[0]


def cost_of(candidate: Candidate) -> Cost:
    assert candidate.cost is not None
    return candidate.cost


def test_nothing_is_told_without_prices_and_power() -> None:
    candidate = first(planned(host("h1", "H100", 8)))
    assert candidate.cost is None
    assert cost_line(candidate) is None
    assert cost_parts(candidate, 80) == ()
    assert cost_document(candidate.cost) is None


def test_a_gpu_counts_whole_and_its_host_by_share() -> None:
    candidate = first(planned(with_tariff(host("h1", "H100", 8))))
    cost = cost_of(candidate)
    assert cost.money is not None
    assert cost.energy is not None
    watts = card_of("NVIDIA H100 80GB HBM3", None)
    assert watts is not None
    assert watts.tdp_watts == 700
    kilowatts = (700 + 800 / 8) * 1.5 / 1000
    assert cost.energy.kilowatts == pytest.approx(kilowatts)
    assert cost.energy.basis is Basis.ASSUMED
    assert (cost.money.gpus, cost.money.hosts) == pytest.approx((2.0, 0.1))
    assert cost.money.energy == pytest.approx(kilowatts * 0.25)
    assert cost.money.per_hour == pytest.approx(2.1 + kilowatts * 0.25)


def test_replicas_pay_for_all_their_gpus() -> None:
    hosts = (with_tariff(host("h1", "H100", 4)), with_tariff(host("h2", "H100", 4)))
    cost = cost_of(first(planned(*hosts, replicas=6), StrategyName.DATA_PARALLEL))
    assert cost.gpus == 6
    assert cost.money is not None
    assert cost.money.gpus == 12.0
    assert cost.money.hosts == pytest.approx(0.8 * 6 / 4)


def test_given_watts_are_computed_with_and_need_no_data_sheet() -> None:
    card = replace(gpu(0, "H100"), name="My card")
    seen = with_tariff(replace(host("h1", "H100", 1), gpus=(card,)), None, Power(gpu_watts=500))
    cost = cost_of(first(planned(seen)))
    assert cost.energy is not None
    assert (cost.energy.kilowatts, cost.energy.basis) == (0.5, Basis.COMPUTED)
    assert cost.money is None
    assert cost.tokens == ()  # the catalogue does not know how fast such a card is


def test_a_card_without_a_data_sheet_leaves_its_energy_unknown() -> None:
    card = replace(gpu(0, "H100"), name="My card")
    cost = cost_of(first(planned(with_tariff(replace(host("h1", "H100", 1), gpus=(card,))))))
    assert cost.energy is None
    assert cost.money is None, "an amount without its energy would be too small"
    assert cost.unknown == (
        "energy: the watts of My card are not in the catalogue; give h1 power: {gpu_watts: W}",
    )


def test_a_million_tokens_carries_the_range_of_the_throughput() -> None:
    candidate = first(planned(with_tariff(host("h1", "H100", 8)), concurrency=4))
    cost, speed = cost_of(candidate), candidate.throughput
    assert isinstance(speed, Throughput)
    assert cost.money is not None
    asked = cost.tokens[0]
    assert (asked.users, asked.context) == (4, 2048)
    assert asked.money is not None
    hours = 1e6 / speed.decode.total / 3600
    assert asked.money.value == pytest.approx(cost.money.per_hour * hours)
    assert asked.money.low == pytest.approx(asked.money.value / speed.high)
    assert asked.money.high == pytest.approx(asked.money.value / speed.low)
    assert asked.kilowatt_hours is not None
    assert cost.energy is not None
    assert asked.kilowatt_hours.value == pytest.approx(cost.energy.kilowatts * hours)
    assert len(cost.tokens) > 1


def two_hosts(second: Host) -> Cost:
    hosts = (with_tariff(host("h1", "H100", 1), power=None), second)
    return cost_of(first(planned(*hosts, replicas=2), StrategyName.DATA_PARALLEL))


def test_a_host_without_a_price_leaves_the_money_unknown() -> None:
    cost = two_hosts(host("h2", "H100", 1))
    assert cost.money is None
    assert cost.unknown == ("money: h2 has no `price` in the inventory",)


def test_currencies_are_not_added() -> None:
    cost = two_hosts(with_tariff(host("h2", "H100", 1), replace(RENT, currency="EUR"), None))
    assert cost.money is None
    assert cost.unknown == ("money: the hosts are priced in EUR and USD; nothing is converted",)


def test_a_slice_counts_by_its_share_of_the_card() -> None:
    card = gpu(0, "H100")
    assert card.total_bytes is not None
    half = card.total_bytes // 2
    slices = tuple(
        Gpu(
            index=1 + number,
            name="NVIDIA H100 80GB HBM3 MIG 3g.40gb",
            compute_capability="9.0",
            total_bytes=half,
            parent=0,
        )
        for number in range(2)
    )
    seen = with_tariff(replace(host("h1", "H100", 1), gpus=(card, gpu(3, "H100"), *slices)))
    made = planned(seen, selection=(GpuSelection(host="h1", devices=("1",)),))
    cost = cost_of(first(made, StrategyName.MANUAL))
    assert cost.gpus == pytest.approx(0.5)
    assert cost.money is not None
    assert cost.money.hosts == pytest.approx(0.8 * 0.25)


def test_in_words_and_as_data() -> None:
    candidate = first(planned(with_tariff(host("h1", "H100", 8)), concurrency=4))
    text = cost_line(candidate)
    assert text is not None
    assert text.startswith(
        "costs 2.40 USD an hour, 1,752 USD a month; draws up to 1.20 kW, watts of the data sheet; "
    )
    assert "a million output tokens: " in text
    assert "with 4 users at 2,048 tokens" in text
    document = cost_document(candidate.cost)
    assert document is not None
    assert (document.per_hour, document.per_month, document.kilowatts) == (2.4, 1752.0, 1.2)
    assert document.million_output_tokens[0].money_low is not None
    (part,) = cost_parts(candidate, 80)
    shown = "\n".join(span.text for row in part.below[0].lines for span in row)
    assert "an hour in USD: 2.00 for GPUs, 0.10 for hosts, 0.30 for energy" in shown
    assert "h1: watts of NVIDIA H100 80GB HBM3, data sheet: 700" in shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0.00"),
        (0.0042, "0.0042"),
        (0.828105, "0.83"),
        (0.0951, "0.095"),
        (1, "1.00"),
        (999.99, "999.99"),
        (1752.4, "1,752"),
    ],
)
def test_amounts_keep_cents_or_two_digits(number: float, shown: str) -> None:
    assert amount(number) == shown


def test_two_candidates_are_compared_by_their_cost() -> None:
    made = planned(with_tariff(host("h1", "H100", 8)))
    one, other = first(made), first(made, StrategyName.SINGLE_HOST)
    (block,) = (block for block in comparison(one, other) if block.title == "cost and energy")
    rows = {row.name: (row.a, row.b, row.difference) for row in block.rows}
    assert rows["USD an hour"] == ("2.40", "4.80", "+2.40")
    assert rows["kilowatts"] == ("1.20", "2.40", "+1.20")
    assert set(rows) == {"USD an hour", "kilowatts", "USD a million output tokens"}
    unpriced = first(planned(host("h1", "H100", 8)))
    assert not [block for block in comparison(unpriced, unpriced) if block.title == "cost and energy"]
