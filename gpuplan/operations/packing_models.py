"""The models of a file as they are asked for: each read and parsed once, its faults told with file, line and entry."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from gpuplan.deploying.compile import default_name
from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.workload import Workload
from gpuplan.engine.versions import EngineVersion
from gpuplan.errors import InventoryError, ModelError, UsageError
from gpuplan.operations.models import Model
from gpuplan.operations.plan import (
    Asked,
    ServingOptions,
    engine_version,
    model_for,
    request_for,
    workload_of,
)
from gpuplan.planning.packing.values import Place
from gpuplan.planning.request import PlanRequest
from gpuplan.sources.documents import did_you_mean, shown
from gpuplan.sources.models_yaml import ModelEntry, ModelsFile, unknown_name

Made = TypeVar("Made")
UTILIZATION = "--gpu-memory-utilization"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedModel:
    """One entry, ready to be planned."""

    entry: ModelEntry
    name: str
    options: ServingOptions
    version: EngineVersion
    workload: Workload
    model: Model

    @property
    def shared(self) -> bool:
        """Whether its share of a GPU follows from its need."""
        return self.entry.share and self.workload.engine.gpu_memory_utilization is None

    def request(self, fleet: Fleet, gpus: Iterable[str] = (), share: float | None = None) -> PlanRequest:
        """The planner's question about one copy, on these GPUs, at this share where one was derived."""
        options = replace(self.options, gpus=tuple(gpus))
        if share is not None:
            options = replace(options, engine_args=(*options.engine_args, UTILIZATION, f"{share:g}"))
        workload = located(self.entry, lambda: workload_of(options, self.version))
        return request_for(self.model, fleet, workload, self.version, Asked(reference=self.entry.model))


def located(entry: ModelEntry, make: Callable[[], Made]) -> Made:
    """What `make` makes; what it refuses, with the place of the entry. Raises InventoryError."""
    try:
        return make()
    except (UsageError, ModelError) as error:
        raise InventoryError(f"{entry.place}: {error.message}", hint=error.hint) from error


def asked_models(file: ModelsFile, image: str | None) -> tuple[AskedModel, ...]:
    """Every model of the file, read. Raises InventoryError for the first that cannot be."""
    models: dict[object, Model] = {}
    asked = tuple(_asked(entry, image, models) for entry in file.models)
    known: dict[str, ModelEntry] = {}
    for one in asked:
        if one.name in known:
            raise InventoryError(
                f"{one.entry.place}: {shown(one.name)!r} is already the name of another model",
                hint="give each of them a name, for example name: chat",
            )
        known[one.name] = one.entry
    for one in asked:
        for other in one.entry.anti_affinity:
            if other not in known:
                raise InventoryError(
                    f"{one.entry.place}: {unknown_name(other, known)}", hint=f"models: {', '.join(known)}"
                )
    return asked


def _asked(entry: ModelEntry, image: str | None, models: dict[object, Model]) -> AskedModel:
    options = ServingOptions(
        context=entry.context,
        concurrency=entry.concurrency,
        kv_cache_dtype=entry.kv_cache_dtype,
        category=entry.category,
        executor=entry.executor or "auto",
        image=entry.image,
        vllm_version=entry.vllm_version,
        vram_claim=entry.vram_claim,
        ram_claim=entry.ram_claim,
        no_distributed=entry.no_distributed,
        no_calibration=entry.no_calibration,
        engine_args=entry.args,
    )
    version = located(entry, lambda: engine_version(options, image))
    workload = located(entry, lambda: workload_of(options, version))
    if workload.engine.data_parallel_size > 1:
        raise InventoryError(
            f"{entry.place}: args: --data-parallel-size {workload.engine.data_parallel_size}: replicas are placed "
            "one by one",
            hint=f"write replicas: {workload.engine.data_parallel_size}; `gpuplan plan` alone places a server of "
            "several data-parallel ranks",
        )
    key = (entry.model, entry.category, workload.engine.user_args, workload.vram_claim_bytes)
    if key not in models:
        models[key] = located(entry, lambda: model_for(entry.model, workload))
    model = models[key]
    name = entry.name or default_name(model.profile.name or entry.model)
    return AskedModel(
        entry=entry, name=name, options=options, version=version, workload=workload, model=model
    )


def pinned(one: AskedModel, fleet: Fleet) -> frozenset[Place] | None:
    """The GPUs an entry is pinned to; None: to none.

    Raises InventoryError for a host, label or GPU that the fleet, as it was narrowed, does not have.
    """
    entry = one.entry
    if not (entry.hosts or entry.labels or entry.gpus):
        return None
    known = {host.name: host for host in fleet.hosts}
    for name in entry.hosts:
        _require_host(entry, "hosts", name, known)
    hosts = [host for host in fleet.hosts if not entry.hosts or host.name in entry.hosts]
    hosts = [host for host in hosts if all(label in host.labels for label in entry.labels)]
    if not hosts:
        written = ", ".join(f"{shown(key)}: {shown(value)}" for key, value in entry.labels)
        raise InventoryError(
            f"{entry.place}: labels: no host{' of those named' if entry.hosts else ''} has {written}",
            hint=f"labels in the fleet: {_labels(fleet)}",
        )
    places = {(host.name, gpu.index) for host in hosts for gpu in host.gpus}
    if entry.gpus:
        places &= {place for text in entry.gpus for place in _named(entry, text, known)}
    return frozenset(places)


def _require_host(entry: ModelEntry, key: str, name: str, known: Mapping[str, Host]) -> Host:
    host = known.get(name)
    if host is None:
        raise InventoryError(
            f"{entry.place}: {key}: there is no host {shown(name)!r}{did_you_mean(name, known)}",
            hint=f"hosts: {', '.join(sorted(known)[:8])}",
        )
    return host


def _named(entry: ModelEntry, text: str, known: Mapping[str, Host]) -> Iterator[Place]:
    """The GPUs of `HOST:IDX[,IDX]`, by index or UUID."""
    name, _, rest = text.partition(":")
    host = _require_host(entry, "gpus", name, known)
    for word in (part.strip() for part in rest.split(",")):
        gpu = next((gpu for gpu in host.gpus if word in (str(gpu.index), gpu.uuid)), None)
        if gpu is None:
            raise InventoryError(
                f"{entry.place}: gpus: host {shown(name)!r} has no GPU {shown(word)!r}",
                hint=f"its GPUs: {', '.join(str(gpu.index) for gpu in host.gpus) or 'none'}",
            )
        yield host.name, gpu.index


def _labels(fleet: Fleet) -> str:
    known = sorted({f"{shown(key)}={shown(value)}" for host in fleet.hosts for key, value in host.labels})
    return ", ".join(known[:8]) or "none"
