"""JSON Schemas of everything that is read or written, by name."""

from collections.abc import Callable
from typing import Any

from gpuplan.errors import UsageError
from gpuplan.sources.catalogue.names import near_misses
from gpuplan.sources.inventory_yaml import inventory_schema
from gpuplan.sources.snapshot_json import snapshot_schema


def schema_of(name: str) -> dict[str, Any]:
    """The schema called `name`. Raises UsageError with near misses."""
    make = SCHEMAS.get(name)
    if make is None:
        near = near_misses(name, list(SCHEMAS), limit=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"there is no schema {name!r}", hint=f"{meant}schemas: {', '.join(SCHEMAS)}")
    return make()


def _plan() -> dict[str, Any]:
    from gpuplan.present.plan_document import PlanDocument

    return _generated(PlanDocument)


def _estimate() -> dict[str, Any]:
    from gpuplan.present.plan_document import EstimateDocument

    return _generated(EstimateDocument)


def _generated(kind: type[Any]) -> dict[str, Any]:
    from pydantic import TypeAdapter

    schema: dict[str, Any] = TypeAdapter(kind).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "plan": _plan,
    "estimate": _estimate,
    "snapshot": snapshot_schema,
    "inventory": inventory_schema,
}
