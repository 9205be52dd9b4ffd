"""`gpuplan lint`: what vLLM would say to a command line, without starting it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.model import CacheKind, ModelProfile
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine import parallel_config
from gpuplan.engine.arguments import parse
from gpuplan.engine.divisibility import Violation, violations
from gpuplan.engine.parallel_config import Circumstances, RuleCode, check, parallelism_of, resolve
from gpuplan.engine.versions import EngineVersion, version_of
from gpuplan.errors import UsageError
from gpuplan.operations.models import read_model
from gpuplan.planning.refusals import RULE_CODES
from gpuplan.sources import serve_config
from gpuplan.sources.catalogue import models as catalogue

TWICE = frozenset({RuleCode.ATTENTION_HEADS, RuleCode.NO_EXPERTS, RuleCode.NO_PIPELINE})
"""Rules about the model that divisibility finds as well: told once, in the words a plan uses."""
BEFORE_THE_MODEL = frozenset({RuleCode.LOAD_BALANCING_MODES, RuleCode.HEADLESS_SERVERS})
"""Checked before the engine reads the model's configuration (`entrypoints/cli/serve.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions:
    """Where the command would run."""

    gpus: int | None = None
    """Visible on the node; None: not judged."""
    ray: bool = True
    """Whether the image has it."""
    config: str | None = None
    """A config.json, a directory or a catalogue name: the model behind the command."""
    moe: bool = False
    """Without a config: whether the model has experts."""
    vllm_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """The verdict on one command line."""

    ok: bool
    version: EngineVersion
    facts: tuple[Fact, ...]
    """In the engine's order: the first error is the one it would print."""
    parallel_config: dict[str, Any] | None
    """What results where it is accepted; None where it is refused."""
    model: str | None
    """The model whose sizes were checked; None: none was read."""


def lint(words: Sequence[str], options: LintOptions) -> Linted:
    """Judge `vllm serve …`, the arguments of its `--config FILE` where that is here.

    Raises GpuplanError for options of ours that make no sense and a model or file that cannot be read.
    """
    if not words:
        raise UsageError(
            "there is no command to judge", hint="write it behind --: gpuplan lint -- vllm serve MODEL …"
        )
    version = version_of(options.vllm_version)
    try:
        arguments = parse(serve_config.with_file(words), version=version)
    except UsageError as error:
        refused = Fact(
            code="GP115",
            severity=Severity.ERROR,
            subject={"vllm_version": str(version)},
            figures={"message": error.message, "hint": error.hint},
        )
        return Linted(ok=False, version=version, facts=(refused,), parallel_config=None, model=None)
    unread = tuple(_not_read(words, version))
    if unread:
        notices = tuple(notice for notice in arguments.notices if notice.flag != serve_config.FLAG)
        arguments = replace(arguments, notices=notices)
    profile = _model(arguments, options.config)
    facts = (*_judged(arguments, options, profile, version), *unread)
    ok = not any(fact.severity is Severity.ERROR for fact in facts)
    return Linted(
        ok=ok,
        version=version,
        facts=facts,
        parallel_config=asdict(resolve(arguments)) if ok else None,
        model=profile.name if profile is not None else None,
    )


def _not_read(words: Sequence[str], version: EngineVersion) -> Iterator[Fact]:
    """GP503 where the engine passes over a file: it looks for `--config` as a word of its own."""
    if any(word.startswith(f"{serve_config.FLAG}=") for word in words):
        yield Fact(
            code="GP503",
            severity=Severity.WARNING,
            subject={"about": serve_config.FLAG, "vllm_version": str(version)},
            figures={"message": "--config=FILE is not read by the engine: write --config FILE, without ="},
        )


def _model(arguments: EngineArguments, config: str | None) -> ModelProfile | None:
    """The model to check sizes against: the one named, else the command's own where it is at hand without a network.

    Its draft is left out: that one may only be had from the hub.
    """
    arguments = replace(arguments, speculative_config=None)
    if config is not None:
        return read_model(config, arguments).profile
    named = arguments.model
    if named and (Path(named).expanduser().exists() or catalogue.find(named) is not None):
        return read_model(named, arguments).profile
    return None


def _judged(
    arguments: EngineArguments, options: LintOptions, profile: ModelProfile | None, version: EngineVersion
) -> Iterator[Fact]:
    around = Circumstances(
        gpus=options.gpus,
        ray=options.ray,
        moe=bool(profile.expert_count) if profile is not None else options.moe,
        attention_heads=(profile.attention_heads or None) if profile is not None else None,
        kv_heads=(profile.kv_heads or None) if profile is not None else None,
        mla=profile is not None and _latent(profile),
        pipeline_supported=profile.supports_pipeline if profile is not None else None,
    )
    shape = parallelism_of(arguments)
    unbuildable = (
        ()
        if profile is None
        else violations(
            profile,
            shape,
            language_model_only=arguments.language_model_only,
            towers_data_parallel=arguments.mm_encoder_tp_mode == "data",
            version=version,
        )
    )
    told = {violation.rule.value for violation in unbuildable}
    broken = [
        rule for rule in check(arguments, around) if not (rule.code in TWICE and rule.code.value in told)
    ]
    yield from (_contradiction(rule) for rule in broken if rule.code in BEFORE_THE_MODEL)
    if profile is not None:
        yield from _too_long(arguments, profile)
    yield from (_contradiction(rule) for rule in broken if rule.code not in BEFORE_THE_MODEL)
    yield from (_unbuildable(violation, shape) for violation in unbuildable)
    if around.moe is False and profile is not None and arguments.data_parallel_size > 1:
        yield Fact(
            code="GP306",
            severity=Severity.INFO,
            subject={"flag": "--data-parallel-size"},
            figures={"replicas": arguments.data_parallel_size},
        )
    for notice in arguments.notices:
        yield Fact(
            code="GP503",
            severity=Severity.WARNING,
            subject={"about": notice.flag, "vllm_version": str(version)},
            figures={"message": notice.message},
        )


def _contradiction(rule: parallel_config.Violation) -> Fact:
    return Fact(
        code="GP116",
        severity=Severity.ERROR,
        subject={"rule": rule.code.value},
        figures={"message": rule.message, "hint": rule.hint},
    )


def _latent(profile: ModelProfile) -> bool:
    return any(cache.kind is CacheKind.LATENT for layer in profile.layer_kinds for cache in layer.caches)


def _unbuildable(violation: Violation, shape: Parallelism) -> Fact:
    return Fact(
        code=RULE_CODES[violation.rule],
        severity=Severity.ERROR,
        subject={"rule": violation.rule.value},
        figures={
            "tensor": shape.tensor,
            "pipeline": shape.pipeline,
            "data": shape.data,
            "expert": shape.expert,
            "part": violation.part,
            "value": violation.value,
            "ranks": violation.ranks,
            "line": violation.line,
        },
    )


def _too_long(arguments: EngineArguments, profile: ModelProfile) -> Iterator[Fact]:
    length, longest = arguments.max_model_len, profile.longest_context
    if isinstance(length, int) and longest and length > longest:
        yield Fact(
            code="GP210",
            severity=Severity.ERROR,
            subject={"model": profile.name},
            figures={"context": length, "longest": longest},
        )
