"""The snapshot's keys, as types: what the file must hold and what `gpuplan schema snapshot` prints.

Typed dicts instead of models: a fleet of 100,000 hosts stays small and quick to read. Lists stop at their first
wrong entry, so that a hostile file cannot make a million faults. Unknown keys are let through here, so that a
snapshot written by a later release is readable; `snapshot_json` refuses those that look mistyped.
"""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    WithJsonSchema,
    with_config,
)
from typing_extensions import TypedDict

from gpuplan.domain.host_facts import Docker, HostFacts, Interface, OurContainer
from gpuplan.sources.documents import key_name, shown

SCHEMA_VERSION = 1


def _printable(text: str) -> str:
    if not (text.strip() and text.isprintable() and len(text) <= 1000):
        raise ValueError(f"{shown(text)!r}: must not be blank, too long or hold control characters")
    return text


Text = Annotated[str, Field(strict=True)]
Name = Annotated[str, Field(strict=True), AfterValidator(_printable)]
Bytes = Annotated[int, Field(strict=True, ge=0, le=2**60)]
Index = Annotated[int, Field(strict=True, ge=0, lt=2**16)]
Number = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Flag = Annotated[bool, Field(strict=True)]

_FIRST_FAULT = Field(fail_fast=True)


def _labels(labels: dict[str, Any]) -> dict[str, str]:
    for key, value in labels.items():
        if not isinstance(value, str):
            raise ValueError(f"the label {key_name(key)!r} must be a text")
        _printable(key)
    return labels


Labels = Annotated[
    dict[str, Any],
    AfterValidator(_labels),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
]

_MOST_FACTS = 100_000


def _bounded(facts: Any) -> Any:
    """Facts whose lists are of a size a host can have: each wrong entry of them would be a fault of its own."""
    waiting = [facts]
    while waiting:
        value = waiting.pop()
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if len(children) > _MOST_FACTS:
            raise ValueError(f"holds a list of {len(children)} entries; no host has more than {_MOST_FACTS}")
        waiting.extend(child for child in children if isinstance(child, dict | list))
    return facts


_BOUNDED = BeforeValidator(_bounded)


def schema_number(value: Any) -> Any:
    """To Python true is 1."""
    if isinstance(value, bool):
        raise ValueError("must be 1")
    return value


_NUMBERS = ("available_bytes", "count", "index", "seconds", "total_bytes")


def _worded(facts: HostFacts) -> HostFacts:
    """Facts whose conditions can be put into words: what is counted with is a number, a GPU is an index."""
    for number, fact in enumerate(facts.conditions):
        numbers = {f"figures.{key}": fact.figures.get(key) for key in _NUMBERS}
        for key, value in {**numbers, "subject.gpu": fact.subject.get("gpu")}.items():
            if isinstance(value, bool) or not (value is None or isinstance(value, int | float)):
                raise ValueError(f"conditions[{number}].{key}: must be a number")
        if not isinstance(fact.subject.get("host", ""), str):
            raise ValueError(f"conditions[{number}].subject.host: must be a text")
    return facts


_WORDED = AfterValidator(_worded)

_OPEN = ConfigDict(extra="allow")


@with_config(_OPEN)
class ProcessKeys(TypedDict):
    pid: Number
    name: NotRequired[Text | None]
    used_bytes: NotRequired[Bytes | None]
    container: NotRequired[Text | None]
    user: NotRequired[Text | None]


@with_config(_OPEN)
class GpuMemoryKeys(TypedDict):
    total_bytes: Bytes | None
    """null: unknown, the GPU is then not used."""
    used_bytes: NotRequired[Bytes | None]
    free_bytes: NotRequired[Bytes | None]
    """Left out: total less used."""
    reserved_bytes: NotRequired[Bytes]
    """Kept back by the inventory."""
    reported_bytes: NotRequired[Bytes | None]
    """Total with what the driver keeps for itself."""


@with_config(_OPEN)
class GpuKeys(TypedDict):
    index: Index
    name: Name
    uuid: NotRequired[Name | None]
    vendor: NotRequired[Name | None]
    backend: NotRequired[Name | None]
    compute_capability: NotRequired[Name | None]
    bandwidth_bytes_per_second: NotRequired[Bytes | None]
    unified: NotRequired[Flag | None]
    excluded: NotRequired[Flag]
    parent: NotRequired[Index | None]
    """A MIG slice: index of its card."""
    profile: NotRequired[Name | None]
    pci_bus_id: NotRequired[Name | None]
    numa_node: NotRequired[Annotated[int, Field(strict=True)] | None]
    utilization_percent: NotRequired[Number | None]
    temperature_celsius: NotRequired[Annotated[int, Field(strict=True)] | None]
    memory: GpuMemoryKeys
    processes: NotRequired[Annotated[list[ProcessKeys], _FIRST_FAULT]]


@with_config(_OPEN)
class FailureKeys(TypedDict):
    stage: Name
    detail: Text


@with_config(_OPEN)
class HostMemoryKeys(TypedDict):
    total_bytes: NotRequired[Bytes | None]
    available_bytes: NotRequired[Bytes | None]
    reserved_bytes: NotRequired[Bytes]


Money = Annotated[float, Field(strict=True, ge=0, le=1e9, allow_inf_nan=False)]
Watts = Annotated[float, Field(strict=True, ge=0, le=1e5, allow_inf_nan=False)]


@with_config(_OPEN)
class PriceKeys(TypedDict):
    """Of the inventory: money an hour."""

    gpu_hour: NotRequired[Money | None]
    host_hour: NotRequired[Money | None]
    currency: NotRequired[Name | None]


@with_config(_OPEN)
class PowerKeys(TypedDict):
    """Of the inventory."""

    gpu_watts: NotRequired[Watts | None]
    host_watts: NotRequired[Watts | None]
    kwh_price: NotRequired[Money | None]
    pue: NotRequired[Annotated[float, Field(strict=True, ge=1, le=10, allow_inf_nan=False)]]


@with_config(_OPEN)
class HostKeys(TypedDict):
    name: Name
    address: NotRequired[Name | None]
    status: NotRequired[Literal["ok", "unreachable", "failed"]]
    failure: NotRequired[FailureKeys | None]
    labels: NotRequired[Labels]
    memory: NotRequired[HostMemoryKeys | None]
    link: NotRequired[Name | None]
    gpus: NotRequired[Annotated[list[GpuKeys], _FIRST_FAULT]]
    deployments: NotRequired[Annotated[list[Annotated[OurContainer, _BOUNDED]], _FIRST_FAULT]]
    docker: NotRequired[Annotated[Docker | None, _BOUNDED]]
    interfaces: NotRequired[Annotated[list[Annotated[Interface, _BOUNDED]], _FIRST_FAULT]]
    facts: NotRequired[Annotated[HostFacts, _BOUNDED, _WORDED]]
    """What else the probe learned; docker, its containers and interfaces stand in keys of their own."""
    price: NotRequired[PriceKeys | None]
    power: NotRequired[PowerKeys | None]


@with_config(_OPEN)
class SnapshotKeys(TypedDict):
    schema_version: Annotated[Literal[1], BeforeValidator(schema_number)]
    taken_at: NotRequired[Name | None]
    basis: NotRequired[Literal["measured", "assumed"]]
    notes: NotRequired[Annotated[list[Text], _FIRST_FAULT]]
    image: NotRequired[Name | None]
    """`vllm.image` of the inventory that was probed."""
    hosts: Annotated[list[HostKeys], _FIRST_FAULT]


SNAPSHOT: TypeAdapter[SnapshotKeys] = TypeAdapter(SnapshotKeys)

KNOWN_KEYS: dict[str, frozenset[str]] = {
    place: frozenset(keys.__annotations__)
    for place, keys in (
        ("snapshot", SnapshotKeys),
        ("host", HostKeys),
        ("failure", FailureKeys),
        ("host memory", HostMemoryKeys),
        ("gpu", GpuKeys),
        ("gpu memory", GpuMemoryKeys),
        ("process", ProcessKeys),
        ("price", PriceKeys),
        ("power", PowerKeys),
    )
}

INFORMATIVE = frozenset({"numa_node", "pci_bus_id", "temperature_celsius", "utilization_percent"})
"""Keys no plan depends on: an unknown key near one of them does no harm."""
