"""What one rank's budget pays beside the KV cache, term by term."""

from dataclasses import replace

from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import Term
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Parallelism
from gpuplan.engine import activation, weights
from gpuplan.engine.divisibility import split_of
from gpuplan.engine.encoder_profile import towers_left_out
from gpuplan.engine.repacking import assumed_capability
from gpuplan.planning.batch import Batch
from gpuplan.planning.calibrate import FiveTerms
from gpuplan.planning.loading import Loading, extra_term
from gpuplan.planning.offers import Device
from gpuplan.planning.question import Question, draft_layers


def rank_terms(question: Question, stage: int, device: Device, tensor_rank: int, batch: Batch) -> FiveTerms:
    """The terms of one rank. Raises Indivisible."""
    profile, engine, parallelism = question.profile, question.engine, question.parallelism
    split = split_seen(question, device, tensor_rank)
    loaded = weights.rank_weights(
        profile,
        split,
        stage=stage,
        stages=parallelism.pipeline,
        layer_partition=parallelism.layer_partition,
        draft_layers=draft_layers(profile, engine),
    )
    setting = activation.RankSetting(
        version=question.version,
        engine=engine,
        parallelism=parallelism,
        stage=stage,
        total_bytes=device.total_bytes,
        device_name=device.name,
        compute_capability=device.compute_capability,
        backend=device.backend,
        unified=device.unified,
        max_num_batched_tokens=batch.tokens,
        max_num_seqs=batch.sequences,
    )
    drafted = 0
    if profile.draft is not None and stage == parallelism.pipeline - 1:
        drafted = (
            loaded.parameters
            - weights.rank_weights(
                profile,
                split,
                stage=stage,
                stages=parallelism.pipeline,
                layer_partition=parallelism.layer_partition,
            ).parameters
        )
    return (
        _weights_term(loaded, profile, parallelism, stage, drafted),
        extra_term(
            Loading(
                profile=profile,
                engine=engine,
                version=question.version,
                parallelism=parallelism,
                split=split,
                stage=stage,
                draft_layers=draft_layers(profile, engine),
                batched_tokens=batch.tokens,
                sequences=batch.sequences,
                backend=device.backend,
                known_card=device.compute_capability is not None or device.backend != "cuda",
            ),
            loaded,
        ),
        activation.activation_term(profile, setting),
        activation.non_torch_term(profile, setting),
        activation.cuda_graph_term(profile, setting),
    )


def spanning(readings: tuple[FiveTerms, ...]) -> FiveTerms:
    """The terms on the likeliest kind of card, each with a range over all kinds it may be."""
    if len(readings) == 1:
        return readings[0]
    loaded, extra, peak, other, graphs = (
        replace(
            alike[0],
            low=min(term.least for term in alike),
            high=max(term.most for term in alike),
        )
        if len({(term.bytes, term.low, term.high) for term in alike}) > 1
        else alike[0]
        for alike in zip(*readings, strict=True)
    )
    return loaded, extra, peak, other, graphs


def expert_share(question: Question, tensor_rank: int) -> int:
    """Which share of uneven experts a rank holds: 0 the larger, 1 the smaller."""
    count = question.profile.expert_count
    split = split_of(question.parallelism)
    if not count or split.expert_ranks == 1:
        return 0
    return int(tensor_rank >= (count + question.engine.num_redundant_experts) % split.expert_ranks)


def split_seen(question: Question, device: Device, tensor_rank: int) -> weights.Split:
    """How the parameters are divided, seen from one rank."""
    engine = question.engine
    split = split_of(
        question.parallelism,
        compute_capability=device.compute_capability or assumed_capability(device.total_bytes),
        language_model_only=engine.language_model_only
        or towers_left_out(question.profile, engine, question.version),
        towers_data_parallel=engine.mm_encoder_tp_mode == "data",
    )
    return replace(
        split,
        expert_rank=tensor_rank if split.expert_ranks > 1 else 0,
        redundant_experts=engine.num_redundant_experts,
    )


def _weights_term(
    loaded: weights.RankWeights, profile: ModelProfile, parallelism: Parallelism, stage: int, drafted: int
) -> Term:
    """`drafted` bytes are of a draft with a checkpoint of its own; of one that nobody read, all of them are a guess."""
    unread = profile.draft is not None and bool(profile.draft.missing)
    known = profile.recognised and not (drafted and unread)
    return Term(
        name="weights",
        bytes=loaded.parameters,
        low=loaded.parameters - drafted if drafted and unread else None,
        basis=Basis.EXACT if known else Basis.ASSUMED,
        formula="embedding and head + decoder layers + towers + other parameters of this rank",
        inputs=(
            ("tensor parallel", parallelism.tensor),
            ("pipeline stage", stage),
            ("embedding and head", loaded.embedding),
            ("decoder layers", loaded.layers),
            ("of which experts", loaded.experts),
            ("towers", loaded.towers),
            ("other", loaded.other),
            *((("of which the draft model", drafted),) if drafted else ()),
        ),
        source="parameters as the engine's model class creates them",
    )
