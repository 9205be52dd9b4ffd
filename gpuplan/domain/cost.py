"""What a placement costs and draws: money and energy an hour, and for a million output tokens."""

from dataclasses import dataclass

from gpuplan.domain.fleet import Basis

HOURS_A_MONTH = 730
"""8,760 hours of a year in twelve parts."""
TOKENS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """Money an hour while the placement is there, used or not. None: no such price was given."""

    currency: str
    gpus: float | None = None
    """For the GPUs taken, each whole."""
    hosts: float | None = None
    """For the hosts, each by the share of its GPUs taken."""
    energy: float | None = None

    @property
    def per_hour(self) -> float:
        return (self.gpus or 0.0) + (self.hosts or 0.0) + (self.energy or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """What is drawn from the grid under full load; kilowatts are kilowatt-hours of each hour."""

    kilowatts: float
    basis: Basis
    """COMPUTED from the watts given; ASSUMED where the data sheet's stand for those of the GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranged:
    """A figure with the range the error of the throughput leaves it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCost:
    """A million output tokens while `users` users are answered at once, all the time."""

    users: int
    context: int
    money: Ranged | None
    kilowatt_hours: Ranged | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Money and energy of one placement, as far as the inventory and the data sheets tell."""

    gpus: float
    """GPUs taken; a MIG slice counts by its share of the card's memory."""
    money: Money | None
    energy: Energy | None
    tokens: tuple[TokenCost, ...]
    """At the load asked for, then at the others the throughput is told for; empty without a throughput."""
    inputs: tuple[tuple[str, int | float | str], ...]
    unknown: tuple[str, ...] = ()
    """Why a figure is missing."""
