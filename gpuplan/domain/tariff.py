"""What a host costs and draws, as the user wrote it down; nothing of it is known unless it was given."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Money an hour, in one currency."""

    gpu_hour: float | None = None
    """For each GPU taken."""
    host_hour: float | None = None
    """For the host beside its GPUs; a placement pays the share of its GPUs it takes."""
    currency: str | None = None
    """Also of `Power.kwh_price`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Electricity under load."""

    gpu_watts: float | None = None
    """Of each GPU; None: the data sheet's."""
    host_watts: float | None = None
    """Of the host beside its GPUs."""
    kwh_price: float | None = None
    """In the currency of the host's price; None: the energy costs nothing extra."""
    pue: float = 1.0
    """Power drawn from the grid for each watt of the hosts (power usage effectiveness): cooling and losses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """Both of one host."""

    price: Price | None = None
    power: Power | None = None


NO_TARIFF = Tariff()
