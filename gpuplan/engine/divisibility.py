"""Which parallel sizes a model can be built with at all, and the engine's words where it cannot.

Sources: vLLM 0.33 `config/model.py` verify_with_parallel_config (heads, pipeline support), `divide()` in
`distributed/utils.py`, `quantization/fp8.py` validate_fp8_block_shape, `quantization/kernels` group sizes; S0.13.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from gpuplan.domain.model import (
    Embedding,
    Experts,
    Float4,
    Float8,
    GroupedInteger,
    Layer,
    Linear,
    MicroscaledFloat8,
    ModelProfile,
    Part,
    ResidentPart,
    Shard,
    Tensor,
)
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.quantization import experts_misfit
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.engine.weights import Indivisible, Split, local_units, part_bytes, stands_whole

EXPERTS_REFINED_SINCE = EngineVersion(0, 29)
"""Float8 blocks that a rank's share of an expert cuts are refused before (`refine_fp8_moe_block_shape`)."""


class Rule(StrEnum):
    """What stands in the way of a parallel size."""

    ATTENTION_HEADS = "attention_heads"
    KV_HEADS = "kv_heads"
    VISION_HEADS = "vision_heads"
    VOCABULARY = "vocabulary"
    WIDTH = "width"
    QUANTIZATION_BLOCK = "quantization_block"
    LAYERS = "layers"
    NO_PIPELINE = "no_pipeline"
    NO_EXPERTS = "no_experts"
    CONTEXT_PARALLEL = "context_parallel"
    DTYPE = "dtype"
    QUANTIZATION = "quantization"
    TOO_OLD = "too_old"
    SLICES = "slices"
    ARGUMENTS = "arguments"
    """The user's own flags contradict each other (`engine.parallel_config`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One rule a parallel size breaks."""

    rule: Rule
    part: str
    """The heads, module or setting that does not divide."""
    value: int
    ranks: int
    line: str
    """What the engine prints."""
    fatal: bool = True
    """False: the engine starts all the same, with scales that no longer match their weights."""
    hint: str | None = None
    """The way out, where the rule alone does not tell it."""


def split_of(parallelism: Parallelism, *, compute_capability: str | None = "9.0", **towers: bool) -> Split:
    """The weight split of a parallelism seen from its first (largest) rank.

    Experts are divided over tp × dp × pcp ranks, whole experts with expert parallel, their width without.
    """
    flat = parallelism.tensor * parallelism.data * parallelism.prefill_context
    return Split(
        tensor=parallelism.tensor,
        expert_ranks=flat if parallelism.expert else 1,
        expert_tensor=1 if parallelism.expert else flat,
        token_sharded_experts=parallelism.expert and parallelism.tensor > 1 and parallelism.data > 1,
        compute_capability=compute_capability,
        **towers,
    )


def grouped(parallelism: Parallelism, profile: ModelProfile, engine: EngineArguments) -> Parallelism:
    """One replica as a member of its server: `--data-parallel-size` replicas of a mixture of experts hold the experts
    together, those of a dense model share nothing (vLLM `FusedMoEParallelConfig.make`)."""
    return (
        replace(parallelism, data=max(engine.data_parallel_size, 1)) if profile.expert_count else parallelism
    )


def violations(
    profile: ModelProfile,
    parallelism: Parallelism,
    *,
    language_model_only: bool = False,
    towers_data_parallel: bool = False,
    version: EngineVersion = DEFAULT,
) -> tuple[Violation, ...]:
    """Every rule the sizes break, the engine's first complaint first; empty when the model can be built so."""
    found = list(_headline_rules(profile, parallelism))
    if any(violation.rule is Rule.ATTENTION_HEADS for violation in found):
        return tuple(found)
    split = split_of(
        parallelism, language_model_only=language_model_only, towers_data_parallel=towers_data_parallel
    )
    parts = _broken_parts(profile.layer_kinds, profile.parts, split, version >= EXPERTS_REFINED_SINCE)
    found += [violation for violation in parts if violation.fatal]
    return (*found, *_draft_rules(profile, parallelism, version))


def _draft_rules(
    profile: ModelProfile, parallelism: Parallelism, version: EngineVersion
) -> Iterator[Violation]:
    """The same of a draft with a checkpoint of its own, which all ranks of the last stage divide."""
    draft = profile.draft
    if draft is None or draft.profile is None:
        return
    one_stage = replace(parallelism, pipeline=1, layer_partition=None)
    own = replace(one_stage, expert=draft.profile.expert_count > 0)
    for broken in violations(draft.profile, own, version=version):
        yield replace(broken, part=f"draft model {draft.name}: {broken.part}")


def misaligned(profile: ModelProfile, parallelism: Parallelism) -> tuple[Violation, ...]:
    """Quantization groups that a rank's share cuts although the engine builds and loads the model."""
    parts = _broken_parts(profile.layer_kinds, profile.parts, split_of(parallelism), refined=True)
    return tuple(violation for violation in parts if not violation.fatal)


@lru_cache(maxsize=512)
def _broken_parts(
    kinds: tuple[Layer, ...], residents: tuple[ResidentPart, ...], split: Split, refined: bool
) -> tuple[Violation, ...]:
    """Parts that cannot be divided so, each once; pipeline stages do not matter to them."""
    found: dict[tuple[str, int], Violation] = {}
    for part in _split_parts(kinds, residents, split):
        for violation in _part_rules(part, split, refined):
            found.setdefault((violation.part, violation.value), violation)
    return tuple(found.values())


def _headline_rules(profile: ModelProfile, parallelism: Parallelism) -> Iterator[Violation]:
    tensor, heads = parallelism.tensor, profile.attention_heads
    if heads and heads % tensor:
        yield Violation(
            rule=Rule.ATTENTION_HEADS,
            part="attention heads",
            value=heads,
            ranks=tensor,
            line=f"Total number of attention heads ({heads}) must be divisible by tensor parallel size ({tensor}).",
        )
    if parallelism.pipeline > max(profile.layer_count, 1):
        yield Violation(
            rule=Rule.LAYERS,
            part="decoder layers",
            value=profile.layer_count,
            ranks=parallelism.pipeline,
            line=f"{parallelism.pipeline} pipeline stages for {profile.layer_count} layers: some stages would be empty",
        )
    if parallelism.pipeline > 1 and not profile.supports_pipeline:
        yield Violation(
            rule=Rule.NO_PIPELINE,
            part=profile.architecture,
            value=1,
            ranks=parallelism.pipeline,
            line="Pipeline parallelism is not supported for this model. Supported models implement the `SupportsPP` interface.",
        )
    if parallelism.expert and not profile.expert_count:
        yield Violation(
            rule=Rule.NO_EXPERTS,
            part="experts",
            value=0,
            ranks=tensor,
            line="Number of experts in the model must be greater than 0 when expert parallelism is enabled.",
        )


def _split_parts(
    kinds: tuple[Layer, ...], residents: tuple[ResidentPart, ...], split: Split
) -> Iterator[Part]:
    for kind in kinds:
        yield from kind.parts
    for resident in residents:
        dropped = resident.tower is not None and split.language_model_only
        if not (resident.buffer or dropped or stands_whole(resident, split)):
            yield resident.part


def _part_rules(part: Part, split: Split, refined: bool) -> Iterator[Violation]:
    try:
        part_bytes(part, split)
    except Indivisible as problem:
        yield _indivisible(part, problem)
        return
    if isinstance(part, Linear):
        yield from _block_rules(part, split.tensor)
    elif isinstance(part, Experts):
        yield from _expert_rules(part, split.expert_tensor, refined)


def _indivisible(part: Part, problem: Indivisible) -> Violation:
    rule = Rule.WIDTH
    if isinstance(part, Embedding):
        rule = Rule.VOCABULARY
    elif isinstance(part, Linear) and "qkv" in part.name:
        rule = (
            Rule.KV_HEADS
            if any(p.replicable and p.units == problem.size for p in part.outputs)
            else Rule.ATTENTION_HEADS
        )
    if isinstance(part, (Linear, Tensor)) and ("visual" in part.name or "vision" in part.name):
        rule = Rule.VISION_HEADS
    return Violation(
        rule=rule,
        part=problem.name,
        value=problem.size,
        ranks=problem.ranks,
        line=f"{problem.size} is not divisible by {problem.ranks}",
    )


def _block_rules(part: Linear, ranks: int) -> Iterator[Violation]:
    if ranks == 1:
        return
    scheme = part.scheme
    if isinstance(scheme, Float8) and scheme.granularity == "block":
        rows, columns = scheme.block
        if part.shard is Shard.ROW:
            width = local_units(part.name, part.inputs, ranks) * part.inputs.unit_size
            if width % columns:
                yield _block(
                    part.name,
                    width,
                    ranks,
                    f"Weight input_size_per_partition = {width} is not divisible by weight quantization block_k = {columns}.",
                )
        if part.shard is Shard.COLUMN and len(part.outputs) == 1:
            for partition in part.outputs:
                width = local_units(part.name, partition, ranks) * partition.unit_size
                if width % rows:
                    yield _block(
                        part.name,
                        width,
                        ranks,
                        f"Weight output_partition_size = {width} is not divisible by weight quantization block_n = {rows}.",
                    )
                    break
    elif isinstance(scheme, (GroupedInteger, Float4, MicroscaledFloat8)) and part.shard is Shard.ROW:
        width = local_units(part.name, part.inputs, ranks) * part.inputs.unit_size
        group = scheme.group_size
        if group > 0 and width % group:
            yield _block(
                part.name,
                width,
                ranks,
                f"Weight input_size_per_partition = {width} is not divisible by group_size = {group}. "
                "Consider reducing tensor_parallel_size or running with --quantization gptq.",
                fatal=not (isinstance(scheme, GroupedInteger) and scheme.layout == "gptq"),
            )


def _expert_rules(part: Experts, ranks: int, refined: bool) -> Iterator[Violation]:
    if ranks == 1:
        return
    width = part.intermediate // ranks
    scheme = part.scheme
    misfit = experts_misfit(scheme, part.hidden, width, refined=refined)
    if misfit and isinstance(scheme, Float8):
        yield _block(
            part.name,
            width,
            ranks,
            f"The output_size of gate's and up's weight = {width} is not divisible by "
            f"weight quantization block_n = {scheme.block[0]}.",
        )
    if misfit and isinstance(scheme, GroupedInteger):
        yield _block(
            part.name,
            width,
            ranks,
            f"intermediate size per partition {width} is not divisible by group_size {scheme.group_size}",
        )
    if isinstance(scheme, Float4) and scheme.variety == "nvfp4" and width % scheme.group_size:
        yield _block(
            part.name,
            width,
            ranks,
            f"intermediate size per partition {width} is not divisible by group_size {scheme.group_size}",
            fatal=False,
        )


def _block(name: str, value: int, ranks: int, line: str, *, fatal: bool = True) -> Violation:
    return Violation(
        rule=Rule.QUANTIZATION_BLOCK, part=name, value=value, ranks=ranks, line=line, fatal=fatal
    )


def legal_tensor_sizes(
    profile: ModelProfile, most: int, *, language_model_only: bool = False
) -> tuple[int, ...]:
    """Tensor-parallel sizes up to `most` the model can be built with, without expert parallel."""
    return tuple(
        size
        for size in range(1, most + 1)
        if not violations(profile, Parallelism(tensor=size), language_model_only=language_model_only)
    )
