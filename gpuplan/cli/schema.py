"""`gpuplan schema NAME`: JSON Schemas, generated from the types that are written and read."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from gpuplan.cli import output
from gpuplan.errors import UsageError

HELP = "The JSON Schema of plan, deployment, snapshot and others."
EXAMPLE = "Example: gpuplan schema plan"


def command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="plan, solve, packing, models, estimate, lint, snapshot, inventory, deployment, sweep, verification.",
        ),
    ],
) -> None:
    """Print one schema."""
    output.show_json(schema_of(name))


def schema_of(name: str) -> dict[str, Any]:
    """The schema called `name`. Raises UsageError with near misses."""
    from gpuplan.sources.catalogue.names import near_misses

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


def _solve() -> dict[str, Any]:
    from gpuplan.present.solve_document import SolveDocument

    return _generated(SolveDocument)


def _packing() -> dict[str, Any]:
    from gpuplan.present.packing_document import PackingDocument

    return _generated(PackingDocument)


def _models() -> dict[str, Any]:
    from gpuplan.sources.models_yaml import models_schema

    return models_schema()


def _lint() -> dict[str, Any]:
    from gpuplan.present.lint_text import LintDocument

    return _generated(LintDocument)


def _snapshot() -> dict[str, Any]:
    from gpuplan.sources.snapshot_json import snapshot_schema

    return snapshot_schema()


def _inventory() -> dict[str, Any]:
    from gpuplan.sources.inventory_yaml import inventory_schema

    return inventory_schema()


def _deployment() -> dict[str, Any]:
    from gpuplan.present.status_document import StatusDocument

    return _generated(StatusDocument)


def _sweep() -> dict[str, Any]:
    from gpuplan.present.sweep_document import SweepDocument

    return _generated(SweepDocument)


def _verification() -> dict[str, Any]:
    from gpuplan.present.verify_document import VerificationDocument

    return _generated(VerificationDocument)


def _generated(kind: type[Any]) -> dict[str, Any]:
    from pydantic import TypeAdapter

    schema: dict[str, Any] = TypeAdapter(kind).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "plan": _plan,
    "solve": _solve,
    "packing": _packing,
    "models": _models,
    "estimate": _estimate,
    "lint": _lint,
    "snapshot": _snapshot,
    "inventory": _inventory,
    "deployment": _deployment,
    "sweep": _sweep,
    "verification": _verification,
}
