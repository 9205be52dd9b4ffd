"""Layer splits, replicated heads, padded vocabularies and experts, by hand-computed figures."""

from itertools import pairwise

import pytest

from gpuplan.domain.model import Embedding, Experts, Linear, Partition, Residence, ResidentPart, Shard, Tensor
from gpuplan.engine.weights import (
    Indivisible,
    Split,
    experts_on_rank,
    holds,
    part_bytes,
    stage_layers,
    stands_whole,
)
from gpuplan.errors import GpuplanError

QKV = Linear(
    name="self_attn.qkv_proj",
    inputs=Partition(units=1024),
    outputs=(
        Partition(units=32, unit_size=128),
        Partition(units=4, unit_size=128, replicable=True),
        Partition(units=4, unit_size=128, replicable=True),
    ),
    shard=Shard.COLUMN,
    itemsize=2,
)


@pytest.mark.parametrize(
    ("layers", "stages", "counts"),
    [
        (61, 4, (15, 15, 16, 15)),
        (62, 4, (15, 16, 16, 15)),
        (64, 4, (16, 16, 16, 16)),
        (7, 4, (2, 2, 2, 1)),
        (3, 2, (2, 1)),
        (5, 1, (5,)),
    ],
)
def test_layer_split_gives_the_remainder_to_the_stages_before_the_last(
    layers: int, stages: int, counts: tuple[int, ...]
) -> None:
    bounds = stage_layers(layers, stages)
    assert tuple(last - first for first, last in bounds) == counts
    assert bounds[0][0] == 0
    assert bounds[-1][1] == layers
    assert all(a[1] == b[0] for a, b in pairwise(bounds))


def test_layer_partition_is_used_as_given() -> None:
    assert stage_layers(10, 2, (7, 3)) == ((0, 7), (7, 10))


@pytest.mark.parametrize("partition", [(7, 4), (10,), (11, -1)])
def test_layer_partition_that_does_not_add_up_is_refused(partition: tuple[int, ...]) -> None:
    with pytest.raises(GpuplanError, match="does not describe 10 layers on 2 pipeline stages"):
        stage_layers(10, 2, partition)


@pytest.mark.parametrize(("ranks", "kv_heads"), [(1, 4), (2, 2), (4, 1), (8, 1), (16, 1)])
def test_kv_heads_are_repeated_when_there_are_more_ranks(ranks: int, kv_heads: int) -> None:
    rows = 32 // ranks * 128 + 2 * kv_heads * 128
    assert part_bytes(QKV, Split(tensor=ranks)) == rows * 1024 * 2


def test_kv_heads_that_come_out_uneven_are_refused() -> None:
    with pytest.raises(Indivisible) as caught:
        part_bytes(QKV, Split(tensor=3))
    assert (caught.value.size, caught.value.ranks) == (32, 3)


@pytest.mark.parametrize(
    ("rows", "ranks", "local"), [(151936, 8, 18992), (128256, 1, 128256), (50257, 2, 25152)]
)
def test_vocabulary_is_padded_to_64_rows_before_it_is_divided(rows: int, ranks: int, local: int) -> None:
    table = Embedding(name="embed_tokens", rows=rows, width=64, itemsize=2)
    assert part_bytes(table, Split(tensor=ranks)) == local * 64 * 2


def test_row_split_keeps_the_whole_bias() -> None:
    layer = Linear(
        name="o_proj",
        inputs=Partition(units=64),
        outputs=(Partition(units=32),),
        shard=Shard.ROW,
        itemsize=2,
        bias=True,
    )
    assert part_bytes(layer, Split(tensor=4)) == (16 * 32 + 32) * 2


def test_first_ranks_hold_the_odd_experts() -> None:
    assert [experts_on_rank(10, 4, rank) for rank in range(4)] == [3, 3, 2, 2]


def test_experts_are_whole_with_expert_parallel_and_narrow_without() -> None:
    experts = Experts(name="experts", count=8, top_k=2, hidden=64, intermediate=128, itemsize=2)
    whole = 8 * 3 * 64 * 128 * 2
    assert part_bytes(experts, Split(tensor=4, expert_tensor=4)) == whole // 4
    assert part_bytes(experts, Split(tensor=4, expert_ranks=4)) == whole // 4
    assert part_bytes(experts, Split(tensor=3, expert_ranks=3)) == whole * 3 // 8
    with pytest.raises(Indivisible):
        part_bytes(experts, Split(tensor=3, expert_tensor=3))


def test_residence_of_tied_embeddings_is_one_copy_on_a_single_stage() -> None:
    assert [holds(Residence.FIRST_AND_LAST, stage, 3) for stage in range(3)] == [True, False, True]
    assert holds(Residence.FIRST_AND_LAST, 0, 1)


def test_tower_whose_heads_do_not_divide_stands_whole() -> None:
    norm = Tensor(name="norm", partition=Partition(units=8), itemsize=2)
    tower = ResidentPart(part=norm, residence=Residence.FIRST, tower="vision", heads=6)
    assert stands_whole(tower, Split(tensor=4))
    assert not stands_whole(tower, Split(tensor=3))
    assert stands_whole(tower, Split(tensor=3, towers_data_parallel=True))
