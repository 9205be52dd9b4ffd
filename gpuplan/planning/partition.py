"""Which layers each pipeline stage holds (`VLLM_PP_LAYER_PARTITION`): the split that leaves most room for the KV cache.

Every rank gets as many KV blocks as the poorest one has room for (vLLM `get_kv_cache_configs`), so the best split is the
one whose poorest stage has most: embedding, head, towers, unlike layers and unlike cards weigh on some stages more than on
others.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Parallelism
from gpuplan.engine.weights import stage_layers
from gpuplan.planning.judge import Assessment, Judge
from gpuplan.planning.offers import Device
from gpuplan.planning.stage_rooms import StageRooms

GAIN = 0.01
"""Part by which the KV cache must grow before the engine's own split is left."""

MOST_LAYERS = 256
"""A model of more is left to the engine's own split: none is known, and a search grows with their square."""

Blocks = Callable[[int, int, int], int]
"""KV blocks of a stage that holds the layers from the second up to the third number; never more with more layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Layers per stage, and the KV blocks of the poorest stage."""

    counts: tuple[int, ...]
    blocks: int


def assess(judge: Judge, shape: Parallelism, devices: tuple[Device, ...]) -> Assessment:
    """The shape with the engine's own split of its layers, or with a better one.

    Better is what fits where the engine's split does not, or has at least 1 % more KV cache; of such splits an even one,
    with its odd layers on other stages, before others.
    """
    even = judge.assess(shape, devices)
    layers = judge.request.profile.layer_count
    splits = 2 <= shape.pipeline <= layers <= MOST_LAYERS
    if even.memory is None or shape.layer_partition is not None or not splits:
        return even
    known = judge.split.get((shape, devices))
    if known is None:
        known = judge.split[shape, devices] = _better(judge, even, devices)
    return known


def _better(judge: Judge, even: Assessment, devices: tuple[Device, ...]) -> Assessment:
    shape, layers = even.parallelism, judge.request.profile.layer_count
    if not even.fits and _too_heavy(even, shape.pipeline):
        return even
    rooms = StageRooms(judge, shape, devices)
    bounds = stage_layers(layers, shape.pipeline)
    own = [rooms.blocks(stage, first, last) for stage, (first, last) in enumerate(bounds)]
    if max(own) < (min(own) * (1 + GAIN) if even.fits else rooms.needed_blocks(even)):
        return even  # no split has more blocks than the roomiest stage has with this one
    if not even.fits and not can_have(rooms.needed_blocks(even), layers, shape.pipeline, rooms.blocks):
        return even
    best = most_blocks(layers, shape.pipeline, rooms.blocks)
    if even.fits and best.blocks < min(own) * (1 + GAIN):
        return even
    rotated = most_blocks(
        layers,
        shape.pipeline,
        rooms.blocks,
        least=layers // shape.pipeline,
        most=-(-layers // shape.pipeline),
    )
    tried = [best] if rotated.blocks * (1 + GAIN) <= best.blocks else [rotated, best]
    for partition in tried:
        if partition.counts == tuple(last - first for first, last in bounds):
            continue
        uneven = judge.assess(replace(shape, layer_partition=partition.counts), devices)
        if uneven.fits and (not even.fits or _tokens(uneven) >= _tokens(even) * (1 + GAIN)):
            return replace(uneven, instead_of=even)
    return even


def _too_heavy(even: Assessment, stages: int) -> bool:
    """Whether the weights are more than all stages have together: a split moves them, it takes nothing away."""
    ranks = () if even.memory is None else even.memory.ranks
    held = [[rank for rank in ranks if rank.stage == stage] for stage in range(stages)]
    weights = sum(min(rank.weights.least for rank in alike) for alike in held)
    return weights > sum(min(rank.budget.bytes for rank in alike) for alike in held)


def _tokens(assessment: Assessment) -> int:
    return 0 if assessment.memory is None else assessment.memory.kv_cache_tokens


def most_blocks(
    layers: int, stages: int, blocks: Blocks, *, least: int = 1, most: int | None = None
) -> Partition:
    """The split whose poorest stage has most blocks, of such the one nearest to the engine's own.

    By halving on the blocks; whether a number can be had is told by giving each stage in turn as many layers as it can
    take. `least` and `most` bound the layers of a stage; the engine's own split must keep them.
    """
    solver = _Solver(layers, stages, blocks, least, layers if most is None else most)
    counts = tuple(last - first for first, last in solver.own)
    low, high = solver.poorest(counts), solver.roomiest()
    while low < high:
        middle = (low + high + 1) // 2
        found = solver.split(middle)
        if found is None:
            high = middle - 1
        else:
            counts, low = found, max(middle, solver.poorest(found))
            high = max(low, high)
    return Partition(counts=solver.nearest(low) or counts, blocks=low)


def can_have(blocks_wanted: int, layers: int, stages: int, blocks: Blocks) -> bool:
    """Whether some split leaves every stage so many blocks."""
    return _Solver(layers, stages, blocks, 1, layers).split(blocks_wanted) is not None


class _Solver:
    """Splits of which every stage has at least so many blocks."""

    def __init__(self, layers: int, stages: int, blocks: Blocks, least: int, most: int) -> None:
        self.own = stage_layers(layers, stages)
        self._layers, self._stages, self._blocks = layers, stages, blocks
        self._least, self._most = least, most

    def poorest(self, counts: tuple[int, ...]) -> int:
        """Blocks of the poorest stage of a split."""
        bounds = stage_layers(self._layers, self._stages, counts)
        return min(self._blocks(stage, first, last) for stage, (first, last) in enumerate(bounds))

    def roomiest(self) -> int:
        """A number that no split exceeds: in every other one some stage holds all that one held here, or more."""
        return max(self._blocks(stage, first, last) for stage, (first, last) in enumerate(self.own))

    def split(self, target: int) -> tuple[int, ...] | None:
        """Each stage in turn takes as many layers as leave it `target` blocks; None when no split does.

        Where that leaves a stage before a layer it cannot hold, a shorter one before it may help: then all are tried.
        """
        counts, first = [], 0
        for stage in range(self._stages):
            last = self._furthest(stage, first, target)
            if last is None:
                return self._any_split(target) if self._holds_any(stage, target) else None
            counts.append(last - first)
            first = last
        return tuple(counts) if first == self._layers else None

    def _holds_any(self, stage: int, target: int) -> bool:
        """Whether a stage before the last could hold the least it may anywhere else."""
        ends = range(stage * self._least, self._layers - self._least)
        return stage < self._stages - 1 and any(
            self._blocks(stage, first, first + self._least) >= target for first in ends
        )

    def _any_split(self, target: int) -> tuple[int, ...] | None:
        """The same by every place at which a stage may end."""
        ways: dict[int, tuple[int, ...]] = {0: ()}
        for stage in range(self._stages):
            found: dict[int, tuple[int, ...]] = {}
            for first, counts in ways.items():
                furthest = self._furthest(stage, first, target)
                for last in () if furthest is None else range(first + self._least, furthest + 1):
                    found.setdefault(last, (*counts, last - first))
            ways = found
        return ways.get(self._layers)

    def nearest(self, target: int) -> tuple[int, ...] | None:
        """Of the splits with `target` blocks, one whose stages begin close to where the engine's own do."""
        earliest = self._earliest(target)
        if earliest is None:
            return None
        counts, first = [], 0
        for stage in range(self._stages):
            furthest = self._furthest(stage, first, target)
            if furthest is None:
                return None
            last = max(earliest[stage + 1], first + self._least, min(self.own[stage][1], furthest))
            counts.append(last - first)
            first = last
        made = tuple(counts)
        return made if first == self._layers and self.poorest(made) >= target else None

    def _furthest(self, stage: int, first: int, target: int) -> int | None:
        """The last layer (not included) of a stage from `first` on with `target` blocks; the others keep their least."""
        after = (self._stages - 1 - stage) * self._least
        low, high = first + self._least, min(first + self._most, self._layers - after)
        if high < low or self._blocks(stage, first, low) < target:
            return None
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._blocks(stage, first, middle) >= target else (low, middle - 1)
        return low

    def _earliest(self, target: int) -> list[int] | None:
        """Where each stage may begin at the earliest, if it and all after it are to have `target` blocks."""
        starts = [self._layers]
        for stage in reversed(range(self._stages)):
            last = starts[-1]
            low, high = max(stage * self._least, last - self._most), last - self._least
            if high < low or self._blocks(stage, high, last) < target:
                return None
            while low < high:
                middle = (low + high) // 2
                low, high = (
                    (low, middle) if self._blocks(stage, middle, last) >= target else (middle + 1, high)
                )
            starts.append(low)
        return starts[::-1]


def notes(assessment: Assessment, devices: tuple[Device, ...]) -> tuple[Fact, ...]:
    """GP311: what the split gains over the engine's own, and which stage that one is short on."""
    even, memory = assessment.instead_of, assessment.memory
    if even is None or even.memory is None or memory is None:
        return ()
    shape = assessment.parallelism
    poorest = min(even.memory.ranks, key=lambda rank: rank.kv_cache_low - rank.kv_needed_bytes)
    counts = [last - first for first, last in stage_layers(sum(shape.layer_partition or ()), shape.pipeline)]
    return (
        Fact(
            code="GP311",
            severity=Severity.INFO,
            subject={"variable": "VLLM_PP_LAYER_PARTITION"},
            figures={
                "layers": list(shape.layer_partition or ()),
                "even_layers": counts,
                "tokens": memory.kv_cache_tokens,
                "even_tokens": even.memory.kv_cache_tokens if even.fits else None,
                "stage": poorest.stage,
                "device": devices[poorest.rank].name,
                "unlike_cards": len(set(devices)) > 1,
                "weights_bytes": poorest.weights.bytes,
                "budget_bytes": poorest.budget.bytes,
            },
        ),
    )
