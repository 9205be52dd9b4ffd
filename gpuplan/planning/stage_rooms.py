"""What a pipeline stage has room for with any run of the model's layers: KV blocks on its poorest rank.

The same terms and checks as `planning.estimate`, for one stage at a time, so that a search over layer splits can ask for
thousands of them.
"""

from dataclasses import replace
from itertools import accumulate

from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Parallelism
from gpuplan.engine import kv_cache
from gpuplan.engine.draft import with_draft
from gpuplan.engine.loading_peak import loading_peak
from gpuplan.planning.batch import batch_of
from gpuplan.planning.estimate import available_bytes, cache_settings, measured_terms
from gpuplan.planning.judge import Assessment, Judge
from gpuplan.planning.offers import Device
from gpuplan.planning.question import Question, asked_length
from gpuplan.planning.rank_terms import expert_share, split_seen

UNLIMITED = 2**62
"""Blocks of a stage that caches nothing."""
NONE = -1
"""Blocks where not even the weights find room."""


class StageRooms:
    """Blocks of the stages of one shape on given devices, on the safe end of the ranges."""

    def __init__(self, judge: Judge, shape: Parallelism, devices: tuple[Device, ...]) -> None:
        asked = judge.question(replace(shape, layer_partition=None), devices)
        question = replace(
            asked, profile=with_draft(asked.profile, asked.version, asked.parallelism.pipeline)
        )
        self._question = question
        self._stages = question.parallelism.pipeline
        self._layers = question.profile.layer_count
        longest = question.profile.longest_context or kv_cache.UNBOUNDED
        self._length = question.context or asked_length(question.engine) or longest
        likeliest = devices[0].readings[0]
        self._batch = batch_of(question, self._length, likeliest)
        settings = cache_settings(question, self._batch, likeliest)
        self._geometry = kv_cache.model_geometry(question.profile, settings)
        self._ranks = self._distinct_ranks(devices)
        self._kinds = _running_counts(question.profile)
        self._by_stage = bool(question.lessons.of_version(question.version))
        self._blocks: dict[tuple[int, int, int], int] = {}
        self._block_bytes: dict[tuple[int, int], int] = {}
        self._free = judge.stage_rooms.setdefault((question.parallelism, self._batch), {})

    def blocks(self, stage: int, first: int, last: int) -> int:
        """KV blocks on the poorest rank of `stage` with the layers from `first` up to `last` (not included).

        The first stage always begins with the model and the last one ends with it.
        """
        first = first if stage else 0
        last = last if stage < self._stages - 1 else self._layers
        key = (stage, first, last)
        known = self._blocks.get(key)
        if known is None:
            size = self._block_size(stage, first, last)
            free = min(self._free_on(rank, stage, first, last, size > 0) for rank in self._ranks[stage])
            known = NONE if free < 0 else free // size if size else UNLIMITED
            self._blocks[key] = known
        return known

    def needed_blocks(self, refused: Assessment) -> int:
        """Blocks that what was asked takes on every stage, at least; one where nothing was asked."""
        question, memory = self._question, refused.memory
        asked = question.context or asked_length(question.engine)
        if memory is None or asked is None:
            return 1
        whole = self._geometry.on_layers(range(len(self._geometry.pages)))
        if whole.weighed:
            return 1
        return max(1, whole.blocks_for(memory.max_model_len) * question.concurrency)

    def _distinct_ranks(self, devices: tuple[Device, ...]) -> list[list[tuple[int, Device]]]:
        """(rank within its stage, device) per stage, one of those that hold the same on the same card."""
        shape = self._question.parallelism
        width = shape.tensor * shape.prefill_context
        found = []
        for stage in range(self._stages):
            seen: dict[tuple[Device, int], tuple[int, Device]] = {}
            for rank, device in enumerate(devices[stage * width : (stage + 1) * width]):
                seen.setdefault((device, expert_share(self._question, rank)), (rank, device))
            found.append(list(seen.values()))
        return found

    def _block_size(self, stage: int, first: int, last: int) -> int:
        """Bytes of a block; draft layers stand on the last stage."""
        end = len(self._geometry.pages) if stage == self._stages - 1 else last
        key = (first, end)
        if key not in self._block_bytes:
            self._block_bytes[key] = self._geometry.block_bytes(range(first, end))
        return self._block_bytes[key]

    def _free_on(self, rank: tuple[int, Device], stage: int, first: int, last: int, cached: bool) -> int:
        """Bytes for the cache on a rank; negative where its part of the model does not fit.

        Stages between the first and the last are alike, and so are runs with as many layers of each kind.
        """
        number, device = rank
        role = stage if self._by_stage else (stage == 0, stage == self._stages - 1)
        kinds = tuple(counts[last] - counts[first] for counts in self._kinds)
        key = (device, expert_share(self._question, number), role, kinds, cached)
        known = self._free.get(key)
        if known is None:
            known = self._free[key] = self._computed(number, device, stage, first, last, cached)
        return known

    def _computed(self, number: int, device: Device, stage: int, first: int, last: int, cached: bool) -> int:
        question = self._with_layers(stage, first, last)
        terms = measured_terms(question, stage, device, number, self._batch, self._length)
        peak = loading_peak(
            question.profile,
            split_seen(question, device.readings[0], number),
            question.version,
            stage=stage,
            stages=self._stages,
            layer_partition=question.parallelism.layer_partition,
        )
        fixed = question.engine.kv_cache_memory_bytes
        held = terms[0].bytes + terms[1].bytes + peak
        wanted = (fixed or 0) + sum(term.bytes for term in terms)
        if held > device.total_bytes or (fixed is not None and wanted > device.total_bytes):
            return NONE
        return available_bytes(question, device, terms, cached=cached)[1]

    def _with_layers(self, stage: int, first: int, last: int) -> Question:
        """The question with these layers on the stage; those before lie on the first one, those after on the last."""
        counts = [0] * self._stages
        counts[0] += first
        counts[-1] += self._layers - last
        counts[stage] += last - first
        return replace(
            self._question, parallelism=replace(self._question.parallelism, layer_partition=tuple(counts))
        )


def _running_counts(profile: ModelProfile) -> list[list[int]]:
    """Per kind of layer, how many there are before each position."""
    return [
        list(accumulate((int(kind == each) for each in profile.layer_order), initial=0))
        for kind in range(len(profile.layer_kinds))
    ]
