"""`gpuplan plan`: options in, a Plan out."""

import os
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Plan, StrategyName
from gpuplan.domain.secret_text import masked_words
from gpuplan.domain.workload import Category, ExecutorChoice, GpuSelection, Placement, Workload
from gpuplan.engine.arguments import parse
from gpuplan.engine.utilization import gpu_memory_utilization
from gpuplan.engine.versions import DEFAULT, EngineVersion, stated_version, version_of
from gpuplan.errors import UsageError
from gpuplan.operations.cards import card_of
from gpuplan.operations.fleet import DECLARED_NOTE, FleetOptions, load_inventory, read_fleet
from gpuplan.operations.lessons import known_lessons
from gpuplan.operations.models import Model, claimed_model, read_model
from gpuplan.planning.likeness import NO_LESSONS, Lessons
from gpuplan.planning.planner import plan
from gpuplan.planning.request import PlanRequest
from gpuplan.sources.catalogue.names import near_misses
from gpuplan.units import MIB, parse_size

Choice = TypeVar("Choice", Category, Placement, ExecutorChoice)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """What is asked of the model, as written on the command line."""

    context: str | None = None
    concurrency: int | None = None
    kv_cache_dtype: str | None = None
    category: str | None = None
    replicas: int = 1
    placement: str | None = None
    executor: str = "auto"
    image: str | None = None
    vllm_version: str | None = None
    vram_claim: str | None = None
    ram_claim: str | None = None
    allow_overcommit: bool = False
    no_distributed: bool = False
    no_calibration: bool = False
    strategies: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    engine_args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a plan repeats beside the workload, so that the same can be asked again."""

    reference: str | None = None
    """MODEL as the user wrote it; None: as the model calls itself."""
    hosts: tuple[str, ...] = ()
    """`--host`."""
    labels: tuple[str, ...] = ()
    """`--label K=V` each."""


NOTHING_ASKED = Asked()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadQuestion:
    """All a plan is made of, read."""

    model: Model
    fleet: Fleet
    workload: Workload
    version: EngineVersion
    asked: Asked


def make_plan(reference: str, fleet_options: FleetOptions, options: ServingOptions) -> Plan:
    """Read fleet and model, evaluate every strategy.

    Raises GpuplanError subclasses for anything the user can correct.
    """
    read = read_question(reference, fleet_options, options)
    return plan_model(read.model, read.fleet, read.workload, read.version, read.asked)


def read_question(reference: str, fleet_options: FleetOptions, options: ServingOptions) -> ReadQuestion:
    """Fleet and model, read. Raises GpuplanError subclasses for anything the user can correct."""
    explicit = fleet_options.inventory is not None
    inventory = load_inventory(fleet_options) if explicit or fleet_options.snapshot is None else None
    if fleet_options.probes:
        # A mistyped model or option is told before anybody waits for hosts.
        version = engine_version(options, inventory.vllm.image if inventory is not None else None)
        workload = workload_of(options, version)
        model = model_for(reference, workload)
        fleet = read_fleet(fleet_options, inventory)
    else:
        fleet = read_fleet(fleet_options, inventory)
        version = engine_version(options, inventory.vllm.image if inventory is not None else fleet.image)
        workload = workload_of(options, version)
        model = model_for(reference, workload)
    asked = Asked(reference=reference, hosts=fleet_options.hosts, labels=fleet_options.labels)
    return ReadQuestion(model=model, fleet=fleet, workload=workload, version=version, asked=asked)


def model_for(reference: str, workload: Workload) -> Model:
    """The model of a workload; with a claim alone it need not be readable."""
    read = claimed_model if workload.vram_claim_bytes is not None else read_model
    return read(reference, workload.engine, workload.category)


def plan_model(
    model: Model, fleet: Fleet, workload: Workload, version: EngineVersion, asked: Asked = NOTHING_ASKED
) -> Plan:
    """Plan a model that was read on a fleet that was read."""
    made = plan(request_for(model, fleet, workload, version, asked))
    return replace(made, facts=(*_notices(workload, model, fleet, version), *made.facts))


def request_for(
    model: Model, fleet: Fleet, workload: Workload, version: EngineVersion, asked: Asked = NOTHING_ASKED
) -> PlanRequest:
    """The planner's question; one model, once read, may be asked about on any fleet."""
    utilization = gpu_memory_utilization(
        workload.engine, category=model.category, architectures=(model.profile.architecture,), version=version
    )
    return PlanRequest(
        fleet=fleet,
        profile=model.profile,
        workload=replace(workload, category=model.category),
        version=version,
        utilization=utilization,
        model_path=model.path,
        siblings=model.siblings,
        accelerators=card_of,
        lessons=lessons_for(workload),
        echo=echo(model.path, workload, version, utilization, model.category, asked),
    )


def lessons_for(workload: Workload) -> Lessons:
    """What was learned from earlier starts; none where they are to be ignored."""
    return NO_LESSONS if not workload.calibrated else known_lessons(os.environ)


def echo(
    model: str,
    workload: Workload,
    version: EngineVersion,
    utilization: float | None,
    category: Category,
    asked: Asked = NOTHING_ASKED,
) -> dict[str, Any]:
    """The request as a plan repeats it: all that is needed to ask it again, secrets masked."""
    return {
        "model": model,
        "reference": model if asked.reference is None else asked.reference,
        "category": category.value,
        "image": workload.image,
        "vllm_version": str(version),
        "gpu_memory_utilization": utilization,
        "context": workload.context,
        "concurrency": workload.concurrency or 1,
        "replicas": workload.replicas,
        "placement": workload.placement.value,
        "executor": workload.executor.value,
        "no_distributed": not workload.allow_distributed,
        "kv_cache_dtype": workload.engine.kv_cache_dtype,
        "vram_claim_bytes": workload.vram_claim_bytes,
        "ram_claim_bytes": workload.ram_claim_bytes,
        "strategies": list(workload.strategies),
        "hosts": list(asked.hosts),
        "labels": list(asked.labels),
        "gpus": [f"{item.host}:{','.join(item.devices)}" for item in workload.selection],
        "allow_overcommit": workload.allow_overcommit,
        "engine_args": list(masked_words(workload.engine.user_args)),
        **({} if workload.calibrated else {"no_calibration": True}),
    }


def _notices(workload: Workload, model: Model, fleet: Fleet, version: EngineVersion) -> list[Fact]:
    facts = [
        Fact(
            code="GP403", severity=Severity.INFO, subject={"fleet": fleet.basis.value}, figures={"note": note}
        )
        for note in fleet.notes
    ]
    messages = [(notice.flag, notice.message) for notice in workload.engine.notices]
    messages += [(model.profile.name, note) for note in model.notes]
    messages += [("fleet", note) for note in fleet.notes if note != DECLARED_NOTE]
    if version > DEFAULT:
        messages.append(
            ("version", f"vLLM {version} is newer than the rules known here; those of {DEFAULT} are used")
        )
    facts += [
        Fact(code="GP503", severity=Severity.INFO, subject={"about": about}, figures={"message": message})
        for about, message in messages
    ]
    return facts


def engine_version(options: ServingOptions, configured: str | None) -> EngineVersion:
    """--vllm-version, else the version in the image's tag (--image, then the configured one), else the default (S2.4)."""
    if options.vllm_version is not None:
        version = version_of(options.vllm_version)
    else:
        version = version_of_image(options.image or configured) or DEFAULT
    if not version.supported:
        raise UsageError(
            f"vLLM {version} is older than the rules known here", hint="use 0.8.0 or newer (--vllm-version)"
        )
    return version


def version_of_image(image: str | None) -> EngineVersion | None:
    """The version an image's tag states (`vllm/vllm-openai:v0.33.0`), None when it states none."""
    if image is None:
        return None
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    return stated_version(tag.partition("-")[0])


def workload_of(options: ServingOptions, version: EngineVersion) -> Workload:
    """The workload behind the options. Raises UsageError naming the option that is wrong."""
    words = list(options.engine_args)
    if options.kv_cache_dtype is not None:
        words = ["--kv-cache-dtype", options.kv_cache_dtype, *words]
    engine = parse(words, version=version, model_given=True)
    return Workload(
        context=_context(options.context),
        concurrency=_positive("--concurrency", options.concurrency),
        category=_choice("--category", options.category, Category),
        replicas=_positive("--replicas", options.replicas) or 1,
        placement=_choice("--placement", options.placement, Placement) or Placement.SPREAD,
        executor=_choice("--executor", options.executor, ExecutorChoice) or ExecutorChoice.AUTO,
        vllm_version=options.vllm_version,
        image=options.image,
        strategies=tuple(_strategy(name) for name in options.strategies),
        selection=tuple(_selection(text) for text in options.gpus),
        vram_claim_bytes=_size("--vram-claim", options.vram_claim),
        ram_claim_bytes=_size("--ram-claim", options.ram_claim),
        allow_overcommit=options.allow_overcommit,
        allow_distributed=not options.no_distributed,
        calibrated=not options.no_calibration,
        engine=engine,
    )


MOST_CONTEXT = 2**31


def _context(text: str | None) -> int | Literal["max"] | None:
    if text is None:
        return None
    if text == "max":
        return "max"
    number = text.strip()
    factor = 1
    if number[-1:] in "kKmM" and number:
        factor = {"k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}[number[-1]]
        number = number[:-1]
    if not number.isdecimal() or not 1 <= int(number) * factor < MOST_CONTEXT:
        raise UsageError(
            f"--context {text}: not a number of tokens", hint="write for example --context 32768, 32K or max"
        )
    return int(number) * factor


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and not 1 <= value <= 10**6:
        raise UsageError(
            f"{name} {value}: must lie between 1 and 1,000,000", hint=f"leave {name} out for the default"
        )
    return value


def _choice(name: str, text: str | None, kind: type[Choice]) -> Choice | None:
    if text is None:
        return None
    values = [str(item.value) for item in kind]
    if text not in values:
        near = near_misses(text, values, limit=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(
            f"{name} {text}: not one of {', '.join(values)}", hint=f"{meant}leave {name} out for the default"
        )
    return kind(text)


def _strategy(name: str) -> str:
    values = [item.value for item in StrategyName]
    if name not in values:
        near = near_misses(name, values, limit=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(
            f"--strategy {name}: no such strategy", hint=f"{meant}strategies: {', '.join(values)}"
        )
    return name


def _selection(text: str) -> GpuSelection:
    host, colon, rest = text.partition(":")
    devices = tuple(item.strip() for item in rest.split(","))
    if not colon or not host or not all(devices):
        raise UsageError(f"--gpus {text}: not HOST:IDX[,IDX…]", hint="write for example --gpus h1:0,1")
    return GpuSelection(host=host, devices=devices)


def _size(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        size = parse_size(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}", hint=f"for example {name} 80GiB") from error
    if size < MIB:
        raise UsageError(
            f"{name} {text}: {size} bytes are too few to be meant",
            hint=f"write size and unit, for example {name} 80GiB",
        )
    return size
