"""`gpuplan plan MODEL --solve`: what it takes to serve so many users at such a context."""

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.hardware import Accelerator
from gpuplan.errors import NoHostError
from gpuplan.operations.fleet import FleetOptions, load_inventory, read_fleet
from gpuplan.operations.plan import Asked, ServingOptions, engine_version, model_for, request_for, workload_of
from gpuplan.planning.solve import Card, Solution, solve
from gpuplan.sources.catalogue import accelerators

NO_FLEET = "there is no inventory and no snapshot"
PER_HOST = 8


def make_solution(reference: str, fleet_options: FleetOptions, options: ServingOptions) -> Solution:
    """Read fleet and model, and ask the fleet and the catalogue of accelerators; without a fleet the catalogue alone.

    Raises GpuplanError subclasses for anything the user can correct.
    """
    inventory = load_inventory(fleet_options)
    version = engine_version(options, inventory.vllm.image if inventory is not None else None)
    workload = workload_of(options, version)
    model = model_for(reference, workload)
    fleet, note = Fleet(hosts=()), NO_FLEET
    if inventory is not None or fleet_options.snapshot is not None:
        try:
            fleet, note = read_fleet(fleet_options, inventory), ""
        except NoHostError as error:
            note = str(error)
    asked = Asked(reference=reference, hosts=fleet_options.hosts, labels=fleet_options.labels)
    request = request_for(model, fleet, workload, version, asked)
    return solve(request, cards(), fleet_note=note or None)


def cards() -> tuple[Card, ...]:
    """Every accelerator of the catalogue that is sold everywhere, by the most a host has of it."""
    return tuple(_card(one) for one in accelerators.load() if one.variant_of is None)


def _card(accelerator: Accelerator) -> Card:
    count = 1 if accelerator.unified else PER_HOST
    return Card(name=accelerator.name, gpus=accelerators.as_gpus(accelerator, count), link=accelerator.link)
