"""Prices and power: read from the inventory, carried by snapshots, refused with file, line and way out."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.tariff import NO_TARIFF, Power, Price, Tariff
from gpuplan.errors import InventoryError
from gpuplan.operations.entries import with_settings
from gpuplan.operations.fleet import declared
from gpuplan.present.fleet_changes import fleet_changes
from gpuplan.sources.inventory_yaml import load
from gpuplan.sources.snapshot_json import dumps, parse
from tests.fleets import host

RENT = Tariff(
    price=Price(gpu_hour=2.49, host_hour=0.5, currency="USD"),
    power=Power(gpu_watts=700, kwh_price=0.25, pue=1.3),
)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "inventory.yaml"
    path.write_text(text)
    return path


def test_defaults_are_merged_key_by_key(tmp_path: Path) -> None:
    inventory = load(
        written(
            tmp_path,
            "defaults: {price: {gpu_hour: 2.49, host_hour: 0.5, currency: USD}, "
            "power: {gpu_watts: 700, kwh_price: 0.25, pue: 1.3}}\n"
            "hosts:\n- {name: a, gpus: {name: L4}}\n- {name: b, price: {gpu_hour: 1}, power: {pue: 1}}",
        )
    )
    first, second = inventory.hosts
    assert first.tariff == RENT
    assert second.tariff == Tariff(
        price=Price(gpu_hour=1, host_hour=0.5, currency="USD"),
        power=Power(gpu_watts=700, kwh_price=0.25, pue=1),
    )
    assert declared(inventory).hosts[0].tariff == RENT


def test_a_currency_alone_prices_nothing(tmp_path: Path) -> None:
    inventory = load(written(tmp_path, "defaults: {price: {currency: USD}}\nhosts: [{name: a}]"))
    assert inventory.hosts[0].tariff == NO_TARIFF


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ("price: {gpu_hour: -1, currency: USD}", "hosts[0].price.gpu_hour: must be at least 0"),
        ("price: {gpu_hour: cheap}", "hosts[0].price.gpu_hour: must be a number without a unit"),
        ("price: {gpu_hour: true}", "hosts[0].price.gpu_hour: must be a number"),
        ("price: {gpu_hour: .nan}", "hosts[0].price.gpu_hour: must be a number"),
        ("price: {gpu_hour: 1e300}", "hosts[0].price.gpu_hour: must be at most"),
        ("price: {gpu_hours: 2}", "hosts[0].price.gpu_hours: unknown key; did you mean 'gpu_hour'?"),
        ("price: 2.49", "hosts[0].price: must be a mapping"),
        ("price: {gpu_hour: 2, currency: 'US D'}", "hosts[0].price.currency: 'US D' is not a currency"),
        (
            "price: {gpu_hour: 2}",
            "hosts[0].price.gpu_hour: has no currency: add for example price: {currency: USD}",
        ),
        ("power: {kwh_price: 0.3}", "hosts[0].power.kwh_price: has no currency"),
        ("power: {gpu_watts: 0}", "hosts[0].power.gpu_watts: must be at least 1"),
        ("power: {gpu_watts: 700W}", "hosts[0].power.gpu_watts: must be a number without a unit"),
        ("power: {pue: 0.9}", "hosts[0].power.pue: must be at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(tmp_path: Path, keys: str, fault: str) -> None:
    with pytest.raises(InventoryError) as caught:
        load(written(tmp_path, f"hosts:\n  - name: a\n    {keys}\n"))
    assert f"inventory.yaml:3: {fault}" in caught.value.message
    assert caught.value.hint


def test_a_default_without_a_currency_is_named_where_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match=r"inventory.yaml:1: defaults.price.gpu_hour: has no currency"):
        load(written(tmp_path, "defaults: {price: {gpu_hour: 2}}\nhosts: [{name: a}]"))


def test_two_currencies_are_refused(tmp_path: Path) -> None:
    text = "hosts:\n- {name: a, price: {gpu_hour: 1, currency: USD}}\n- {name: b, price: {gpu_hour: 1, currency: EUR}}"
    with pytest.raises(
        InventoryError, match=r"inventory.yaml:3: hosts\[1\].price.currency: EUR, but a is priced in USD"
    ):
        load(written(tmp_path, text))


def test_a_snapshot_carries_them() -> None:
    fleet = Fleet(hosts=(replace(host("a", "H100", 1), tariff=RENT), host("b", "H100", 1)))
    text = dumps(fleet)
    again = parse(text.encode(), "x.json")
    assert [one.tariff for one in again.hosts] == [RENT, NO_TARIFF]
    assert dumps(parse(dumps(again).encode(), "x.json")) == dumps(again)


@pytest.mark.parametrize(
    ("then", "fault"),
    [
        ('"gpu_hour": 2.49', '"gpu_hour": -2'),
        ('"gpu_hour": 2.49', '"gpu_hour": "2"'),
        ('"gpu_hour": 2.49', '"gpu_hours": 2'),
        ('"pue": 1.3', '"pue": 0.5'),
        ('"gpu_watts": 700', '"gpu_watts": true'),
    ],
)
def test_a_snapshot_with_impossible_figures_is_refused(then: str, fault: str) -> None:
    text = dumps(Fleet(hosts=(replace(host("a", "H100", 1), tariff=RENT),)))
    assert then in text
    with pytest.raises(InventoryError, match=r"hosts\[0\]"):
        parse(text.replace(then, fault).encode(), "x.json")


def test_an_inventory_beside_a_snapshot_prices_it(tmp_path: Path) -> None:
    inventory = load(written(tmp_path, "hosts: [{name: a, price: {gpu_hour: 3, currency: USD}}]"))
    fleet = with_settings(Fleet(hosts=(replace(host("a", "H100", 1), tariff=RENT),)), inventory)
    assert fleet.hosts[0].tariff == Tariff(price=Price(gpu_hour=3, currency="USD"), power=RENT.power)


def test_a_new_price_is_a_difference_of_two_snapshots() -> None:
    before = replace(host("a", "H100", 1), tariff=RENT)
    assert RENT.price is not None
    after = replace(before, tariff=replace(RENT, price=replace(RENT.price, gpu_hour=2.99)))
    changes = fleet_changes(Fleet(hosts=(before,)), Fleet(hosts=(after,)))
    assert [(one.kind, one.words) for one in changes] == [("tariff", "price of a GPU-hour: 2.49 → 2.99")]
