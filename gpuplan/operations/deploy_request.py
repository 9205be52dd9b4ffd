"""What a user wants deployed, read before any host is reached: a mistyped option or model is told at once."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuplan.domain.fleet import Basis, Fleet
from gpuplan.domain.inventory import Inventory
from gpuplan.domain.saved_plan import SavedPlan
from gpuplan.domain.workload import Workload
from gpuplan.engine.versions import EngineVersion
from gpuplan.errors import UsageError
from gpuplan.operations.fleet import THIS_MACHINE, FleetOptions, load_inventory, narrow, parse_label
from gpuplan.operations.models import Model
from gpuplan.operations.plan import Asked, ServingOptions, engine_version, model_for, workload_of
from gpuplan.operations.replan import serving_options
from gpuplan.operations.served_model import WantedModel, wanted_model
from gpuplan.sources import plan_json

if TYPE_CHECKING:
    from gpuplan.operations.probe import OpenFleet


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployRequest:
    """What a user wants to run, as written on the command line."""

    reference: str
    """MODEL, or the path of a saved plan."""
    fleet: FleetOptions
    serving: ServingOptions
    name: str | None = None
    keep_alive_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The request read, before any host is reached: a mistyped option is told at once."""

    inventory: Inventory
    model: Model
    workload: Workload
    version: EngineVersion
    saved: SavedPlan | None
    asked: Asked
    name: str | None
    keep_alive_seconds: int | None
    environ: Mapping[str, str]
    trial: bool = False
    """Made-up weights, started to be measured and removed."""
    carried: Mapping[str, bytes] = field(default_factory=dict, hash=False, repr=False)
    """The model's small files, of a trial on hosts that do not have its directory."""


def read_wanted(request: DeployRequest) -> Wanted:
    """Inventory, model, workload and version behind a request. Raises what planning raises for a wrong one."""
    options = request.fleet
    inventory = load_inventory(options) or THIS_MACHINE
    saved = None
    serving = request.serving
    reference = request.reference
    hosts, chosen = options.hosts, options.labels
    if plan_json.is_plan(request.reference):
        saved = plan_json.load(request.reference, repeated=serving.engine_args, environ=options.environ)
        if saved.basis is not Basis.MEASURED and options.probes:
            raise UsageError(
                f"{request.reference}: the plan was made for declared hardware, not for hosts as they are",
                hint=f"`gpuplan plan {saved.reference} -o json > plan.json` without --no-probe, or deploy the model itself",
            )
        serving, reference = serving_options(saved), saved.reference
        hosts, chosen = saved.hosts, saved.labels
    version = engine_version(serving, inventory.vllm.image)
    workload = workload_of(serving, version)
    return Wanted(
        inventory=inventory,
        model=model_for(reference, workload),
        workload=workload,
        version=version,
        saved=saved,
        asked=Asked(reference=reference, hosts=hosts, labels=chosen),
        name=request.name,
        keep_alive_seconds=request.keep_alive_seconds,
        environ=options.environ,
    )


@contextmanager
def opened_fleet(request: DeployRequest, wanted: Wanted) -> "Iterator[OpenFleet]":
    """Every host of the inventory, connected: what runs on those that are not meant matters too."""
    from gpuplan.operations.probe import open_fleet

    options = request.fleet
    assert options.reach is not None
    reach = options.reach()
    count = len(wanted.inventory.hosts)
    if options.watch is None:
        with open_fleet(wanted.inventory, reach) as opened:
            yield opened
        return
    with options.watch(count) as progress:
        opening = open_fleet(wanted.inventory, reach, progress)
        opened = opening.__enter__()
    try:
        yield opened
    finally:
        opening.__exit__(None, None, None)


def narrowed(fleet: Fleet, wanted: Wanted) -> Fleet:
    """The hosts that were asked for."""
    chosen = tuple(parse_label(text) for text in wanted.asked.labels)
    return narrow(fleet, hosts=wanted.asked.hosts, labels=chosen)


def named_model(wanted: Wanted) -> WantedModel:
    """What MODEL means on the hosts."""
    return wanted_model(
        wanted.asked.reference or wanted.model.path, wanted.model, wanted.workload.engine.revision
    )
