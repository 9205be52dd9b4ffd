"""Money and energy of the candidates of a finished plan: never asked while placing, never a reason for a placement.

GPUs count whole, a MIG slice by its share of the card's memory; a host counts by the share of its cards taken.
"""

from dataclasses import dataclass, field, replace

from gpuplan.domain.cost import TOKENS, Cost, Energy, Money, Ranged, TokenCost
from gpuplan.domain.fleet import Basis, Gpu, Host
from gpuplan.domain.plan import Candidate, StrategyResult
from gpuplan.domain.tariff import Power
from gpuplan.domain.throughput import Throughput
from gpuplan.planning.request import PlanRequest

Input = tuple[str, int | float | str]
WATTS = 1000
HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a placement takes of one host."""

    host: Host
    cards: tuple[tuple[Gpu, float], ...]
    """Each card once, with how much of it is taken."""
    share: float
    """Of the host's cards."""

    @property
    def gpus(self) -> float:
        return sum(part for _, part in self.cards)


@dataclass(slots=True)
class Account:
    """What is found out on the way to one cost."""

    inputs: list[Input] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Costs:
    """Costs of the candidates of one request; nothing where no host has prices or power."""

    request: PlanRequest
    _hosts: dict[str, Host] = field(default_factory=dict)

    def __post_init__(self) -> None:
        hosts = self.request.fleet.hosts
        if any(_is_told(host) for host in hosts):
            self._hosts = {host.name: host for host in hosts}

    def told(self, result: StrategyResult) -> StrategyResult:
        """The result with the cost of every candidate of which some host has a price or power."""
        if not self._hosts:
            return result
        candidates = tuple(replace(one, cost=self._of(one)) for one in result.candidates)
        return replace(result, candidates=candidates)

    def _of(self, candidate: Candidate) -> Cost | None:
        indexes: dict[str, set[int]] = {}
        for placed in candidate.placement:
            indexes.setdefault(placed.host, set()).update(gpu.index for gpu in placed.gpus)
        taken = [_taken(self._hosts[name], own) for name, own in indexes.items()]
        if not any(_is_told(one.host) for one in taken):
            return None
        account = Account()
        for one in taken:
            account.inputs.append((f"{one.host.name}: GPUs taken", round(one.gpus, 3)))
            account.inputs.append((f"{one.host.name}: share of the host taken", round(one.share, 4)))
        energy, by_host = self._energy(taken, account)
        money = _money(taken, by_host, account)
        speed = candidate.throughput
        return Cost(
            gpus=sum(one.gpus for one in taken),
            money=money,
            energy=energy,
            tokens=_per_tokens(speed, money, energy) if isinstance(speed, Throughput) else (),
            inputs=tuple(account.inputs),
            unknown=tuple(account.unknown),
        )

    def _energy(self, taken: list[Taken], account: Account) -> tuple[Energy | None, dict[str, float]]:
        """Kilowatts of all hosts, None with the reason where one does not tell; and those of each host that does."""
        if all(one.host.tariff.power is None for one in taken):
            return None, {}
        kilowatts: dict[str, float] = {}
        assumed = False
        for one in taken:
            name, power = one.host.name, one.host.tariff.power
            if power is None:
                account.unknown.append(f"energy: {name} has no `power` in the inventory")
                continue
            drawn = self._gpu_watts(one, power, account)
            if drawn is None:
                continue
            assumed = assumed or power.gpu_watts is None
            kilowatts[name] = (drawn + (power.host_watts or 0) * one.share) * power.pue / WATTS
            account.inputs.append((f"{name}: watts of the host beside its GPUs", power.host_watts or 0))
            account.inputs.append((f"{name}: drawn from the grid for each watt (PUE)", power.pue))
        if len(kilowatts) < len(taken):
            return None, kilowatts
        basis = Basis.ASSUMED if assumed else Basis.COMPUTED
        return Energy(kilowatts=sum(kilowatts.values()), basis=basis), kilowatts

    def _gpu_watts(self, taken: Taken, power: Power, account: Account) -> float | None:
        """Watts of the GPUs taken: given, else of the data sheets; None with the reason where one is unknown."""
        name = taken.host.name
        if power.gpu_watts is not None:
            account.inputs.append((f"{name}: watts of a GPU, given", power.gpu_watts))
            return power.gpu_watts * taken.gpus
        watts, told = 0.0, set()
        for gpu, part in taken.cards:
            kind = gpu.kinds[0].name if gpu.kinds else gpu.name
            card = self.request.accelerators(kind, gpu.total_bytes)
            if card is None or card.tdp_watts is None:
                account.unknown.append(
                    f"energy: the watts of {kind} are not in the catalogue; give {name} power: {{gpu_watts: W}}"
                )
                return None
            if kind not in told:
                told.add(kind)
                account.inputs.append((f"{name}: watts of {kind}, data sheet", card.tdp_watts))
            watts += card.tdp_watts * part
        return watts


def _is_told(host: Host) -> bool:
    return host.tariff.price is not None or host.tariff.power is not None


def _taken(host: Host, indexes: set[int]) -> Taken:
    """Cards and slices of a host, by index."""
    by_index = {gpu.index: gpu for gpu in host.gpus}
    parts: dict[int, float] = {}
    for index in sorted(indexes):
        gpu = by_index[index]
        card = by_index.get(gpu.parent) if gpu.parent is not None else None
        key = gpu.index if card is None else card.index
        parts[key] = min(1.0, parts.get(key, 0.0) + _part(gpu, card))
    cards = sum(gpu.parent is None or gpu.parent not in by_index for gpu in host.gpus)
    return Taken(
        host=host,
        cards=tuple((by_index[index], part) for index, part in parts.items()),
        share=min(1.0, sum(parts.values()) / max(cards, 1)),
    )


def _part(gpu: Gpu, card: Gpu | None) -> float:
    """How much of a card a device is: all of it, or a slice by its memory."""
    if card is None or not card.total_bytes or not gpu.total_bytes:
        return 1.0
    return gpu.total_bytes / card.total_bytes


def _money(taken: list[Taken], kilowatts: dict[str, float], account: Account) -> Money | None:
    """Money an hour; None where no host is priced, and with the reason where only some are or currencies differ."""
    priced = {one.host.name: one.host.tariff.price for one in taken}
    if all(price is None for price in priced.values()):
        return None
    missing = [name for name, price in priced.items() if price is None]
    if missing:
        account.unknown.append(f"money: {', '.join(missing[:3])} has no `price` in the inventory")
        return None
    currencies = sorted({price.currency or "?" for price in priced.values() if price is not None})
    if len(currencies) > 1:
        account.unknown.append(
            f"money: the hosts are priced in {' and '.join(currencies)}; nothing is converted"
        )
        return None
    sums: dict[str, float] = {}
    for one in taken:
        price, power, name = one.host.tariff.price, one.host.tariff.power, one.host.name
        kwh_price = None if power is None else power.kwh_price
        if price is None or (kwh_price is not None and name not in kilowatts):
            return None  # what it draws is unknown, which is told
        for key, amount, times, about in (
            ("gpus", price.gpu_hour, one.gpus, "an hour of a GPU"),
            ("hosts", price.host_hour, one.share, "an hour of the host"),
            ("energy", kwh_price, kilowatts.get(name, 0.0), "a kilowatt-hour"),
        ):
            if amount is not None:
                sums[key] = sums.get(key, 0.0) + amount * times
                account.inputs.append((f"{name}: {currencies[0]} for {about}", amount))
    return Money(currency=currencies[0], **sums)


def _per_tokens(speed: Throughput, money: Money | None, energy: Energy | None) -> tuple[TokenCost, ...]:
    """A million output tokens at each load the throughput is told for; its error becomes the range."""
    found = []
    for load in dict.fromkeys((speed.decode, *speed.others)):
        if load.total <= 0:
            continue
        hours = TOKENS / load.total / HOUR_SECONDS

        def span(an_hour: float, hours: float = hours) -> Ranged:
            value = an_hour * hours
            return Ranged(value=value, low=value / speed.high, high=value / speed.low)

        found.append(
            TokenCost(
                users=load.users,
                context=load.context,
                money=None if money is None else span(money.per_hour),
                kilowatt_hours=None if energy is None else span(energy.kilowatts),
            )
        )
    return tuple(found)
