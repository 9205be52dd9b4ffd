"""`price` and `power` of a snapshot's host ⇄ `Tariff`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gpuplan.domain.tariff import NO_TARIFF, Power, Price, Tariff

if TYPE_CHECKING:
    from gpuplan.sources.snapshot_schema import HostKeys


def tariff_of(host: "HostKeys") -> Tariff:
    """Prices and power of a host, validated before; keys of later releases are left out."""
    price, power = host.get("price"), host.get("power")
    if not price and not power:
        return NO_TARIFF
    return Tariff(
        price=Price(**_known(Price, price)) if price else None,
        power=Power(**_known(Power, power)) if power else None,
    )


def _known(kind: type[Price | Power], keys: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {key: value for key, value in keys.items() if key in names and value is not None}
