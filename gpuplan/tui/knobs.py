"""The knobs of a plan as a person turns them: texts and switches that stand for the command line's options, and back.

Nothing is checked here but what the command line's own parser checks; the operations say what is wrong with a value.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from gpuplan.domain.workload import Category, ExecutorChoice, Placement
from gpuplan.engine.argument_tokens import flatten, grouped
from gpuplan.errors import UsageError
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.question import flag_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What is set; an empty text is the default."""

    context: str = ""
    concurrency: str = ""
    gpu_memory_utilization: str = ""
    kv_cache_dtype: str = ""
    tensor_parallel_size: str = ""
    pipeline_parallel_size: str = ""
    data_parallel_size: str = ""
    enable_expert_parallel: bool = False
    replicas: str = ""
    placement: str = ""
    executor: str = ""
    no_distributed: bool = False
    no_calibration: bool = False
    allow_overcommit: bool = False
    strategies: str = ""
    """Names with spaces between them."""
    category: str = ""
    vllm_version: str = ""
    image: str = ""
    cpu_offload_gb: str = ""
    vram_claim: str = ""
    ram_claim: str = ""
    extra: str = ""
    """Any other argument of vLLM, as a shell reads it."""
    gpus: tuple[str, ...] = ()
    """HOST:IDX[,IDX…]: chosen by marking, not by typing."""


DEFAULTS = Knobs()
EXTRA_ARGUMENTS = "vLLM args"


class Kind(StrEnum):
    TEXT = "text"
    CHOICE = "choice"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """How one knob is shown and what it stands for."""

    field: str
    label: str
    option: str
    """The command line's name of it, as error messages write it."""
    kind: Kind = Kind.TEXT
    engine: bool = False
    """An argument of vLLM's, not of ours."""
    choices: tuple[str, ...] = ()
    """The empty one is the default."""
    default: str = ""
    """In words, for an empty field."""


KNOBS: tuple[Knob, ...] = (
    Knob(field="context", label="context", option="--context", default="longest that fits"),
    Knob(field="concurrency", label="concurrency", option="--concurrency", default="1"),
    Knob(
        field="gpu_memory_utilization",
        label="GPU memory",
        option="--gpu-memory-utilization",
        engine=True,
        default="vLLM's default",
    ),
    Knob(field="kv_cache_dtype", label="KV dtype", option="--kv-cache-dtype", default="auto"),
    Knob(
        field="tensor_parallel_size",
        label="TP",
        option="--tensor-parallel-size",
        engine=True,
        default="planned",
    ),
    Knob(
        field="pipeline_parallel_size",
        label="PP",
        option="--pipeline-parallel-size",
        engine=True,
        default="planned",
    ),
    Knob(
        field="data_parallel_size",
        label="DP",
        option="--data-parallel-size",
        engine=True,
        default="1",
    ),
    Knob(
        field="enable_expert_parallel",
        label="expert parallel",
        option="--enable-expert-parallel",
        kind=Kind.SWITCH,
        engine=True,
    ),
    Knob(field="replicas", label="replicas", option="--replicas", default="1"),
    Knob(
        field="placement",
        label="placement",
        option="--placement",
        kind=Kind.CHOICE,
        choices=("", Placement.BINPACK.value),
        default=Placement.SPREAD.value,
    ),
    Knob(
        field="executor",
        label="executor",
        option="--executor",
        kind=Kind.CHOICE,
        choices=("", ExecutorChoice.RAY.value, ExecutorChoice.MP.value),
        default=ExecutorChoice.AUTO.value,
    ),
    Knob(field="no_distributed", label="one host only", option="--no-distributed", kind=Kind.SWITCH),
    Knob(field="allow_overcommit", label="overcommit", option="--allow-overcommit", kind=Kind.SWITCH),
    Knob(field="strategies", label="strategy", option="--strategy", default="any"),
    Knob(
        field="category",
        label="category",
        option="--category",
        kind=Kind.CHOICE,
        choices=("", *(item.value for item in Category)),
        default="auto",
    ),
    Knob(field="vllm_version", label="vLLM version", option="--vllm-version", default="the image's"),
    Knob(field="image", label="image", option="--image", default="the inventory's"),
    Knob(
        field="cpu_offload_gb", label="CPU offload GiB", option="--cpu-offload-gb", engine=True, default="0"
    ),
    Knob(field="no_calibration", label="no calibration", option="--no-calibration", kind=Kind.SWITCH),
    Knob(field="vram_claim", label="VRAM claim", option="--vram-claim", default="estimated"),
    Knob(field="ram_claim", label="RAM claim", option="--ram-claim", default="estimated"),
    Knob(field="extra", label=EXTRA_ARGUMENTS, option="", default="any other, as for vllm serve"),
)
BY_FIELD = {knob.field: knob for knob in KNOBS}
_ENGINE = {knob.option: knob for knob in KNOBS if knob.engine}


def options_of(knobs: Knobs) -> ServingOptions:
    """The command line's options. Raises UsageError, naming the option, for what it would not take."""
    return ServingOptions(
        context=knobs.context.strip() or None,
        concurrency=_whole("--concurrency", knobs.concurrency),
        kv_cache_dtype=knobs.kv_cache_dtype.strip() or None,
        category=knobs.category or None,
        replicas=_whole("--replicas", knobs.replicas) or 1,
        placement=knobs.placement or None,
        executor=knobs.executor or ExecutorChoice.AUTO.value,
        image=knobs.image.strip() or None,
        vllm_version=knobs.vllm_version.strip() or None,
        vram_claim=knobs.vram_claim.strip() or None,
        ram_claim=knobs.ram_claim.strip() or None,
        allow_overcommit=knobs.allow_overcommit,
        no_distributed=knobs.no_distributed,
        no_calibration=knobs.no_calibration,
        strategies=tuple(knobs.strategies.replace(",", " ").split()),
        gpus=knobs.gpus,
        engine_args=(*_engine_words(knobs), *_extra_words(knobs.extra)),
    )


def _whole(option: str, text: str) -> int | None:
    if not text.strip():
        return None
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"{option} {text[:40]}: not a whole number", hint=f"write for example {option} 4"
        ) from None


def _engine_words(knobs: Knobs) -> tuple[str, ...]:
    words: list[str] = []
    for option, knob in _ENGINE.items():
        value = getattr(knobs, knob.field)
        if value is True:
            words.append(option)
        elif value and value.strip():
            words += [option, value.strip()]
    return tuple(words)


def _extra_words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(
            f"{EXTRA_ARGUMENTS}: {str(error).lower()}", hint="close the quote, or write the value without one"
        ) from None


def knobs_of(options: ServingOptions) -> Knobs:
    """The knobs that stand for the options; of an argument that is written twice the last one, which is what counts."""
    found: dict[str, str | bool] = {}
    extra: list[str] = []
    for group in grouped(flatten(options.engine_args)):
        knob = _ENGINE.get(flag_name(group))
        value = _value(group, knob) if knob is not None else None
        if knob is None or value is None:
            extra += group
        else:
            found[knob.field] = value
    knobs = Knobs(
        context=options.context or "",
        concurrency="" if options.concurrency is None else str(options.concurrency),
        kv_cache_dtype=options.kv_cache_dtype or "",
        category=options.category or "",
        replicas="" if options.replicas == 1 else str(options.replicas),
        placement="" if options.placement in (None, Placement.SPREAD.value) else str(options.placement),
        executor="" if options.executor == ExecutorChoice.AUTO.value else options.executor,
        image=options.image or "",
        vllm_version=options.vllm_version or "",
        vram_claim=options.vram_claim or "",
        ram_claim=options.ram_claim or "",
        allow_overcommit=options.allow_overcommit,
        no_distributed=options.no_distributed,
        no_calibration=options.no_calibration,
        strategies=" ".join(options.strategies),
        gpus=options.gpus,
        extra=shlex.join(extra),
    )
    return replace(knobs, **found)  # type: ignore[arg-type]  # a knob's own kind of value


def _value(group: tuple[str, ...], knob: Knob) -> str | bool | None:
    """What a flag sets its knob to; None where that is not one value."""
    attached = group[0].partition("=")[2]
    values = (*((attached,) if attached else ()), *group[1:])
    if knob.kind is Kind.SWITCH:
        return None if values else True
    return values[0] if len(values) == 1 else None


def knob_named(message: str, knobs: Knobs) -> str | None:
    """The field an error message is about: that of the option it names first, if it is the knob that sets it."""
    words = message.replace(",", " ").replace(":", " ").replace("=", " ").split()
    named = next((word for word in words if word.startswith("-")), None)
    if message.startswith(EXTRA_ARGUMENTS):
        return "extra"
    if named is None:
        return "extra" if knobs.extra and "argument" in words else None
    knob = next((knob for knob in KNOBS if knob.option == named), None)
    if knob is None:
        return "gpus" if named == "--gpus" else "extra"
    return "extra" if knob.engine and not getattr(knobs, knob.field) else knob.field


def set_words(knobs: Knobs) -> tuple[str, ...]:
    """Every knob that is set, a few words each."""
    words = []
    for knob in KNOBS:
        value = getattr(knobs, knob.field)
        if value is True:
            words.append(knob.label)
        elif value and value.strip():
            words.append(value.strip() if knob.field == "extra" else f"{knob.label} {value.strip()}")
    if knobs.gpus:
        words.append(f"GPUs {' '.join(knobs.gpus)}")
    return tuple(words)


def difference(before: Knobs, after: Knobs) -> tuple[str, ...]:
    """Labels of the knobs that differ."""
    names = [item.name for item in fields(Knobs) if getattr(before, item.name) != getattr(after, item.name)]
    return tuple(BY_FIELD[name].label if name in BY_FIELD else "GPUs" for name in names)


def defaults_of(request: Mapping[str, Any]) -> dict[str, str]:
    """What empty fields stand for in a plan's request (`Plan.request`), by field."""
    share = request.get("gpu_memory_utilization")
    return {
        "gpu_memory_utilization": "what it needs" if share is None else f"{share:g}",
        "vllm_version": str(request.get("vllm_version") or ""),
    }
