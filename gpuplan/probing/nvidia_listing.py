"""`nvidia-smi -L`: the UUIDs of MIG slices, which most drivers print nowhere else."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpuplan.probing.nvidia_cards import Card, Memory, Slice

_CARD = re.compile(r"^\s*GPU\s+(\d+):\s*(.*?)\s*\(UUID:\s*([^)\s]+)\)")
_SLICE = re.compile(r"^\s+MIG\s+(\S+)\s+Device\s+(\d+):\s*\(UUID:\s*([^)\s]+)\)")
_OLD = re.compile(r"MIG-GPU-[0-9a-f-]+/(\d+)/(\d+)$")
"""UUID of a slice before driver 470: card, GPU instance, compute instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A card of the list."""

    index: int
    name: str
    uuid: str
    slices: tuple[Slice, ...] = ()
    """Without their memory."""


def parse(text: str) -> tuple[Listed, ...]:
    """Cards with their slices, in the order printed; other lines are passed over."""
    cards: list[Listed] = []
    for line in text.splitlines():
        card = _CARD.match(line)
        if card is not None:
            cards.append(Listed(index=int(card.group(1)), name=card.group(2), uuid=card.group(3)))
            continue
        part = _SLICE.match(line)
        if part is not None and cards:
            old = _OLD.search(part.group(3))
            found = Slice(
                number=int(part.group(2)),
                profile=part.group(1),
                uuid=part.group(3),
                instance=(int(old.group(1)), int(old.group(2))) if old is not None else None,
            )
            cards[-1] = replace(cards[-1], slices=(*cards[-1].slices, found))
    return tuple(cards)


def joined(card: Card, listed: Iterable[Listed]) -> Card:
    """The card with the index, UUIDs and profiles of the list; its slices are the list's where the card has none."""
    found = next((one for one in listed if card.uuid is not None and one.uuid == card.uuid), None)
    if found is None:
        return card
    names = {part.number: part for part in found.slices}
    slices = tuple(
        replace(part, uuid=names[part.number].uuid, profile=names[part.number].profile)
        if part.number in names
        else part
        for part in card.slices
    )
    return replace(card, index=found.index, slices=slices or found.slices, mig=card.mig or bool(found.slices))


def left_over(cards: Iterable[Card], listed: Iterable[Listed]) -> Iterable[Card]:
    """Cards only the list names: they are there, with a memory nobody told. Each index and UUID is given once."""
    found = list(cards)
    uuids, indexes = {card.uuid for card in found}, {card.index for card in found}
    for one in listed:
        if one.uuid in uuids or one.index in indexes:
            continue
        uuids.add(one.uuid)
        indexes.add(one.index)
        yield Card(
            index=one.index,
            name=one.name,
            uuid=one.uuid,
            memory=Memory(detail="only nvidia-smi -L names this GPU"),
            mig=bool(one.slices),
            slices=one.slices,
        )
