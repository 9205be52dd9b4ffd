"""From what a log says of a start to the estimator's question for the very same one, and what is missing for it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from gpuplan.domain.calibration import PRINTED
from gpuplan.domain.hardware import Accelerator
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.arguments import parse
from gpuplan.engine.divisibility import grouped
from gpuplan.engine.start_arguments import argument_words
from gpuplan.engine.start_facts import RankFacts, StartFacts
from gpuplan.engine.utilization import gpu_memory_utilization
from gpuplan.engine.versions import EngineVersion, version_of
from gpuplan.errors import ModelError, UsageError
from gpuplan.operations.models import Model, read_model
from gpuplan.planning.learned import Gap, Missing
from gpuplan.planning.offers import Device
from gpuplan.planning.question import Question
from gpuplan.planning.shapes import base
from gpuplan.sources.catalogue import accelerators
from gpuplan.sources.catalogue import models as catalogue
from gpuplan.units import GIB

ENOUGH = 8 * GIB
"""Added to what a log says was loaded and left, where the card's memory is unknown: loading does not depend on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the user says where a log does not."""

    model: str | None = None
    gpu: str | None = None
    """`--gpu NAME[:COUNT]`."""
    version: str | None = None
    engine_args: tuple[str, ...] = ()
    """Arguments in the engine's syntax; they win over those of the log."""

    @property
    def accelerator(self) -> Accelerator | None:
        """Raises UsageError for a name that is not one."""
        return None if self.gpu is None else accelerators.parse_gpu_option(self.gpu)[0]


NOTHING_KNOWN = Known()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The question, and how much of it is certain."""

    question: Question | None
    total_known: bool = True
    card_known: bool = True
    total_named: bool = False
    """The memory of the card is that of the user's word alone: the log prints none."""
    missing: tuple[Missing, ...] = ()


def question_of(facts: StartFacts, known: Known = NOTHING_KNOWN) -> Asked:
    """The very start that a log tells of. Raises UsageError and ModelError for what the user said that is wrong."""
    accelerator = known.accelerator
    if facts.empty:
        return Asked(question=None, missing=(Missing(gap=Gap.START),))
    version = version_of(known.version) if known.version is not None else facts.version
    if version is None or not version.supported:
        detail = "" if version is None else str(version)
        return Asked(question=None, missing=(Missing(gap=Gap.VERSION, detail=detail),))
    if facts.platform == "cpu":
        return Asked(question=None, missing=(Missing(gap=Gap.PLATFORM, detail="cpu"),))
    words, missing = _arguments(facts, known, version)
    engine = parse(words, version=version, model_given=True)
    model = _model(facts, known, engine)
    if isinstance(model, ModelError):
        missing.append(Missing(gap=Gap.MODEL, detail=model.message))
        return Asked(question=None, missing=tuple(missing))
    if model.profile.quantization is None and (said := _quantization(facts)) is not None:
        engine = parse((*words, "--quantization", said), version=version, model_given=True)
        again = _model(facts, known, engine)
        model = model if isinstance(again, ModelError) else again
    if facts.architecture is not None and facts.architecture != model.profile.architecture:
        detail = f"{facts.architecture}, not {model.profile.architecture}"
        missing.append(Missing(gap=Gap.ARCHITECTURE, detail=detail))
    device, total_known, card_known = _device(facts, accelerator)
    if not total_known:
        missing.append(Missing(gap=Gap.TOTAL))
    elif not card_known:
        missing.append(Missing(gap=Gap.CARD))
    shape = replace(base(engine), tensor=engine.tensor_parallel_size, pipeline=engine.pipeline_parallel_size)
    if shape.pipeline > 1 and not facts.of_stages(shape.pipeline):
        missing.append(Missing(gap=Gap.STAGES, detail=str(shape.pipeline)))
    shape = grouped(shape, model.profile, engine)
    question = _question(facts, model, engine, version, shape, device)
    return Asked(
        question=question,
        total_known=total_known,
        card_known=card_known,
        total_named=known.gpu is not None and facts.total_bytes is None,
        missing=tuple(missing),
    )


def _question(
    facts: StartFacts,
    model: Model,
    engine: EngineArguments,
    version: EngineVersion,
    shape: Parallelism,
    device: Device,
) -> Question:
    share = gpu_memory_utilization(
        engine, category=model.category, architectures=(model.profile.architecture,), version=version
    )
    return Question(
        profile=model.profile,
        engine=engine,
        version=version,
        parallelism=shape,
        devices=(device,) * shape.world_size,
        utilization=share,
        context=None if isinstance(engine.max_model_len, int) else facts.max_model_len,
    )


def _arguments(
    facts: StartFacts, known: Known, version: EngineVersion
) -> tuple[tuple[str, ...], list[Missing]]:
    """The engine's arguments by the log, then by the user; what of them is missing."""
    missing = []
    values: Mapping[str, Any] = facts.arguments or {}
    if facts.arguments is None:
        values = _configured(facts.config or {})
        if not known.engine_args:
            missing.append(Missing(gap=Gap.ARGUMENTS))
    elif facts.arguments_cut and not known.engine_args:
        missing.append(Missing(gap=Gap.ARGUMENTS, detail="cut"))
    words, refused = argument_words(values, version)
    if refused:
        missing.append(Missing(gap=Gap.REFUSED, detail=", ".join(refused)))
    if facts.batched_tokens is not None and "max_num_batched_tokens" not in values:
        words = (*words, "--max-num-batched-tokens", str(facts.batched_tokens))
    return (*words, *known.engine_args), missing


def _configured(config: Mapping[str, str]) -> dict[str, Any]:
    """Arguments by the engine's configuration, where its own line of them is not there."""
    values: dict[str, Any] = {}
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        if config.get(name, "").isdecimal():
            values[name] = int(config[name])
    if config.get("max_seq_len", "").isdecimal():
        values["max_model_len"] = int(config["max_seq_len"])
    if config.get("enforce_eager") == "True":
        values["enforce_eager"] = True
    if config.get("kv_cache_dtype", "auto") != "auto":
        values["kv_cache_dtype"] = config["kv_cache_dtype"]
    dtype = config.get("dtype", "").removeprefix("torch.")
    if dtype:
        values["dtype"] = dtype
    return values


def _quantization(facts: StartFacts) -> str | None:
    """What the engine says the weights are converted to, where the arguments do not."""
    said = (facts.config or {}).get("quantization", "None")
    given = (facts.arguments or {}).get("quantization")
    return None if given is not None or said in {"None", ""} else said


def _model(facts: StartFacts, known: Known, engine: EngineArguments) -> Model | ModelError:
    """The model the user names, else that of the log: by its path here, its place in the hub's cache, or its name."""
    if known.model is not None:
        return read_model(known.model, engine)
    first = ModelError("")
    for reference in _references(facts.model or ""):
        try:
            return read_model(reference, engine)
        except ModelError as error:
            first = first if first.message else error
    return first


def _references(said: str) -> tuple[str, ...]:
    """What a log's model may be here: a path of another machine ends in a name that the catalogue may know."""
    parts = [part for part in PurePosixPath(said).parts if part not in {"/", "."}]
    cached = next((part.split("--") for part in parts if part.startswith("models--")), [])
    named = ["/".join(cached[1:])] if len(cached) == 3 else []
    last = parts[-1] if parts else ""
    if said.count("/") == 1 and not said.startswith(("/", ".")):
        return (said,)
    found = [said, *named] if said else []
    return (*found, *((last,) if last and catalogue.find(last) is not None else ()))


def _device(facts: StartFacts, accelerator: Accelerator | None) -> tuple[Device, bool, bool]:
    """The card, whether its memory is known, and whether its kind is. Raises UsageError where log and user disagree."""
    printed = facts.total_bytes
    if accelerator is None and facts.gpu is not None:
        accelerator = accelerators.by_device_name(facts.gpu, printed)
    if accelerator is None:
        total = printed or _enough(facts.ranks)
        return (
            Device(name=facts.gpu or "custom", total_bytes=total),
            printed is not None,
            facts.gpu is not None,
        )
    total = accelerator.memory_bytes
    if printed is not None:
        if abs(printed - total) * 20 > total:
            raise UsageError(
                f"--gpu {accelerator.name}: {total / GIB:.2f} GiB, the log says {printed / GIB:.2f} GiB",
                hint="name the card the log is of, or write NAME=SIZE",
            )
        total = total if abs(printed - total) <= PRINTED else printed
    device = Device(
        name=accelerator.device_name,
        total_bytes=total,
        compute_capability=accelerator.compute_capability,
        vendor=accelerator.vendor,
        backend=accelerator.backend,
        unified=accelerator.unified,
    )
    return device, True, True


def _enough(ranks: tuple[RankFacts, ...]) -> int:
    """A card on which what was loaded and left would have room."""
    loaded = max((rank.loading or 0 for rank in ranks), default=0)
    cached = max((rank.kv_cache or 0 for rank in ranks), default=0)
    return 2 * (loaded + max(0, cached) + ENOUGH)
