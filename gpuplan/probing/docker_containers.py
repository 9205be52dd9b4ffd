"""Containers of an engine: which are ours, and what they are called.

Ours carry `io.gpuplan.managed=true` and say in labels what they were made for. Labels with lists hold JSON.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuplan.domain.host_facts import OurContainer
from gpuplan.domain.labels import CLAIMS, DEPLOYMENT, ENDPOINT, GPUS, KEEP_ALIVE, MANAGED, PORTS, RANK, ROLE
from gpuplan.probing.json_values import text, text_map, texts

OUR_FILTER = json.dumps({"label": [f"{MANAGED}=true"]})
"""`filters` of `/containers/json`."""
_URL = re.compile(
    r"http://(?:(?P<plain>[\w.-]{1,255})|\[(?P<bracketed>[\da-fA-F:.]{2,45})\]):(?P<port>\d{1,5})/?"
)
_MOST_DIGITS = 6
_MOST_BYTES = 2**62
_MOST_SECONDS_DIGITS = 12


def our_containers(listed: Iterable[Any]) -> tuple[OurContainer, ...]:
    """Entries of `/containers/json`, those without our label left out; by deployment, rank and name."""
    ours = (_ours(entry) for entry in listed if text_map(entry, "Labels").get(MANAGED) == "true")
    return tuple(sorted(ours, key=lambda each: (each.deployment, each.rank or 0, each.name)))


def servers(listed: Iterable[Any]) -> tuple[tuple[str, str, int], ...]:
    """Id, address and port of each of our containers that runs a server and is past its loading, by id."""
    found = []
    for entry in listed:
        labels = text_map(entry, "Labels")
        parts = _URL.fullmatch(labels.get(ENDPOINT, ""))
        if labels.get(MANAGED) != "true" or parts is None or _ours(entry).loading:
            continue
        if text(entry, "State") == "running" and (identity := text(entry, "Id")):
            found.append((identity, parts["plain"] or parts["bracketed"], int(parts["port"])))
    return tuple(sorted(found))


def container_names(listed: Iterable[Any]) -> dict[str, str]:
    """Name by id, for naming the owner of a process."""
    return {identity: _name(entry) for entry in listed if (identity := text(entry, "Id"))}


def _ours(entry: Mapping[str, Any]) -> OurContainer:
    labels = text_map(entry, "Labels")
    rank = labels.get(RANK, "")
    state = text(entry, "State")
    return OurContainer(
        id=text(entry, "Id"),
        name=_name(entry),
        deployment=labels.get(DEPLOYMENT, ""),
        state=state,
        role=labels.get(ROLE, ""),
        rank=int(rank) if rank.isascii() and rank.isdigit() and len(rank) <= _MOST_DIGITS else None,
        image=text(entry, "Image"),
        gpus=_uuids(labels.get(GPUS, "")),
        claims=_claims(labels.get(CLAIMS, "")),
        loading=state == "running" and "(health: starting)" in text(entry, "Status"),
        ports=_ports(labels.get(PORTS, "")),
        keep_alive_seconds=_seconds(labels.get(KEEP_ALIVE, "")),
    )


def _seconds(label: str) -> int | None:
    """Whole seconds, `-1` too; None for what makes no sense."""
    digits = label.removeprefix("-")
    whole = digits.isascii() and digits.isdigit() and len(digits) <= _MOST_SECONDS_DIGITS
    return int(label) if whole else None


def _name(entry: Any) -> str:
    """Of several names (links give more) the one without a second slash."""
    all_names = [name.removeprefix("/") for name in texts(entry, "Names")]
    return next((name for name in all_names if "/" not in name), all_names[0] if all_names else "")


def _uuids(label: str) -> tuple[str, ...]:
    document = _json(label)
    return tuple(entry for entry in document if isinstance(entry, str)) if isinstance(document, list) else ()


def _claims(label: str) -> tuple[tuple[str, int], ...]:
    document = _json(label)
    if not isinstance(document, dict):
        return ()
    return tuple(sorted((uuid, claim) for uuid, claim in document.items() if _whole(claim, _MOST_BYTES)))


def _ports(label: str) -> tuple[int, ...]:
    document = _json(label)
    entries = document.values() if isinstance(document, dict) else document
    if not isinstance(entries, list) and not isinstance(document, dict):
        return ()
    return tuple(sorted({port for port in _expanded(entries) if _whole(port, 65535) and port > 0}))


def _expanded(entries: Iterable[Any]) -> Iterator[Any]:
    """Ports and ranges `[first, last]` one by one; a range that is none is left out."""
    for entry in entries:
        if isinstance(entry, list):
            if len(entry) == 2 and all(_whole(port, 65535) for port in entry):
                yield from range(entry[0], entry[1] + 1)
        else:
            yield entry


def _whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _json(label: str) -> Any:
    try:
        return json.loads(label)
    except (ValueError, RecursionError):
        return None
