"""Which kinds of card report a size, for hardware that is given as a size alone.

Logs print sizes with two decimals of a GiB, so that is how closely they are compared: 79.18 is an H100, 79.25 an A100.
Integrated GPUs report what the firmware and the kernel left of the host's memory, which differs between machines of one
kind: any size between the smallest and the largest that was logged is theirs.
"""

from collections.abc import Iterable

from gpuplan.domain.fleet import Basis
from gpuplan.domain.hardware import Accelerator
from gpuplan.engine.rank_setting import HOPPER, SWITCHLESS
from gpuplan.units import GIB, MIB

BACKENDS = frozenset(("cuda", "rocm"))
"""Backends vLLM's own images are made for."""


def kinds_of_size(cards: Iterable[Accelerator], size: int) -> tuple[Accelerator, ...]:
    """Cards that differ in what the engine makes of them and report `size` bytes, the likeliest first.

    A size that was measured on a card goes before one that was computed for a sibling, and that before the size WSL
    reports of GeForce cards, nearly the nominal one. Regional variants count as the card they are a variant of. Empty
    where no card or cards of several backends report such a size.
    """
    candidates = [card for card in cards if card.variant_of is None and card.backend in BACKENDS]
    measured = [card for card in candidates if card.memory_basis is Basis.MEASURED]
    nominal = [card for card in candidates if "GeForce" in card.device_name and size % GIB]
    for found in (
        [card for card in measured if _reports(card, size)],
        [card for card in candidates if _reports(card, size)],
        [card for card in nominal if _reported(card) == _printed(size)],
    ):
        if found:
            return _unlike(found) if len({card.backend for card in found}) == 1 else ()
    return ()


def _reports(card: Accelerator, size: int) -> bool:
    totals = (card.memory_bytes, *card.also_bytes)
    if card.unified and len(totals) > 1:
        return min(totals) <= size <= max(totals)
    return _printed(size) in {_printed(total) for total in totals}


def _reported(card: Accelerator) -> str | None:
    return _printed(card.reported_mib * MIB) if card.reported_mib else None


def _printed(size: int) -> str:
    return f"{size / GIB:.2f}"


def _unlike(found: list[Accelerator]) -> tuple[Accelerator, ...]:
    """One card of each that the engine treats alike, newer ones first."""
    first: dict[tuple[str | None, bool, bool, bool], Accelerator] = {}
    for card in found:
        name = card.device_name.lower()
        switchless = _capability(card)[0] >= HOPPER and any(part in name for part in SWITCHLESS)
        first.setdefault((card.compute_capability, card.unified, "a100" in name, switchless), card)
    return tuple(sorted(first.values(), key=_capability, reverse=True))


def _capability(card: Accelerator) -> tuple[int, ...]:
    return tuple(map(int, (card.compute_capability or "0.0").split(".")))
