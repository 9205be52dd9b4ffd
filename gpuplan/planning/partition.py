"""A pipeline split that follows the memory of unequal stages (`VLLM_PP_LAYER_PARTITION`)."""

from gpuplan.domain.memory import RankMemory
from gpuplan.domain.plan import Parallelism
from gpuplan.engine.weights import stage_layers
from gpuplan.planning.judge import Assessment, Judge


def balanced_partition(judge: Judge, shape: Parallelism, even: Assessment) -> tuple[int, ...] | None:
    """Layers per stage in proportion to what each stage's smallest card has left for layers and their cache.

    None when there is a single stage, all cards are alike and the stages too, or the even split is the answer.
    """
    layers = judge.request.profile.layer_count
    if shape.pipeline < 2 or even.memory is None or layers < shape.pipeline:
        return None
    per_stage = [
        rank for rank in even.memory.ranks if rank.rank % (shape.tensor * shape.prefill_context) == 0
    ]
    counts = [last - first for first, last in stage_layers(layers, shape.pipeline)]
    smallest = [
        min(rank.budget.bytes for rank in even.memory.ranks if rank.stage == stage)
        for stage in range(shape.pipeline)
    ]
    per_layer = _per_layer(per_stage, counts)
    rooms = [
        max(0, smallest[stage] - _fixed(per_stage[stage], counts[stage], per_layer))
        for stage in range(shape.pipeline)
    ]
    if not any(rooms) or per_layer <= 0:
        return None
    partition = _shares(layers, rooms)
    return None if partition == tuple(counts) else partition


def _per_layer(ranks: list[RankMemory], counts: list[int]) -> int:
    """Bytes of one layer and its part of the needed cache, on the stage where layers weigh least beside other parts."""
    middle = min(range(len(ranks)), key=lambda stage: _loaded(ranks[stage]) / max(counts[stage], 1))
    return _loaded(ranks[middle]) // max(counts[middle], 1)


def _loaded(rank: RankMemory) -> int:
    return rank.weights.bytes + rank.kv_needed_bytes


def _fixed(rank: RankMemory, layers: int, per_layer: int) -> int:
    """Bytes of a stage that do not go with its layers: embedding, head, towers, activation, graphs."""
    beside = max(0, _loaded(rank) - layers * per_layer)
    return (
        beside + rank.weights_extra.bytes + rank.activation.most + rank.non_torch.most + rank.cuda_graph.most
    )


def _shares(layers: int, rooms: list[int]) -> tuple[int, ...]:
    """Whole layers in proportion to the rooms, at least one each, largest remainders first."""
    total = sum(rooms)
    exact = [layers * room / total for room in rooms]
    shares = [max(1, int(share)) for share in exact]
    order = sorted(range(len(rooms)), key=lambda stage: (shares[stage] - exact[stage], stage))
    index = 0
    while sum(shares) < layers:
        shares[order[index % len(order)]] += 1
        index += 1
    while sum(shares) > layers:
        largest = max(range(len(shares)), key=lambda stage: shares[stage])
        shares[largest] -= 1
    return tuple(shares)
