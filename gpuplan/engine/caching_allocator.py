"""torch's caching allocator, as far as it decides how many bytes count as allocated.

c10/cuda/CUDACachingAllocator.cpp (torch 2.6 to 2.11): sizes are rounded to 512 bytes (kMinBlockSize). Up to 1 MiB
(kSmallSize) blocks are split exactly. Above it the smallest free block that is large enough is taken, else a segment of
20 MiB is made (kLargeBuffer), or one rounded up to 2 MiB from 10 MiB on (kMinLargeAlloc, kRoundLarge). A block is split
only where more than 1 MiB would be left (`should_split`); a smaller rest stays with it and counts as allocated.

Under `max_split_size_mb` larger requests are never split: they get a segment of their own, or a free one that is less than
20 MiB too large (`get_free_block`), and smaller requests do not touch those.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

from gpuplan.units import MIB, round_up

LEAST_BLOCK = 512
SMALL = MIB
LARGE = 10 * MIB
LARGE_BUFFER = 20 * MIB
SEGMENT = 2 * MIB
UNSPLIT = MIB
NON_SPLIT_ROUNDING = 20 * MIB


class Block(NamedTuple):
    """A piece of a segment in bytes."""

    size: int
    segment: int
    start: int


class CachingAllocator:
    """Counts what `torch.cuda.memory_allocated` reports while tensors come and go."""

    __slots__ = ("_ends", "_free", "_most_split", "_segments", "_starts", "allocated")

    def __init__(self, max_split_size: int | None = None) -> None:
        self.allocated = 0
        self._most_split = max_split_size
        self._segments = 0
        self._free: list[Block] = []
        self._starts: dict[tuple[int, int], Block] = {}
        self._ends: dict[tuple[int, int], Block] = {}

    def allocate(self, size: int) -> Block:
        """A block for a tensor of `size` bytes."""
        size = max(LEAST_BLOCK, round_up(size, LEAST_BLOCK))
        if size <= SMALL:
            self.allocated += size
            return Block(size, 0, 0)
        whole = self._most_split is not None and size >= self._most_split
        found = self._fitting(size, whole=whole)
        if found is not None:
            self._take(found)
        else:
            self._segments += 1
            found = Block(LARGE_BUFFER if size < LARGE else round_up(size, SEGMENT), self._segments, 0)
        if found.size - size > UNSPLIT and not whole:
            self._give(Block(found.size - size, found.segment, found.start + size))
            found = Block(size, found.segment, found.start)
        self.allocated += found.size
        return found

    def _fitting(self, size: int, *, whole: bool) -> Block | None:
        """The smallest free block that may hold `size` bytes."""
        place = bisect_left(self._free, Block(size, -1, -1))
        if place == len(self._free):
            return None
        found = self._free[place]
        if whole:
            return found if found.size < size + NON_SPLIT_ROUNDING else None
        return found if self._most_split is None or found.size < self._most_split else None

    def release(self, block: Block) -> None:
        """Give a block back; it joins free neighbours of its segment."""
        self.allocated -= block.size
        if block.size <= SMALL:
            return
        after = self._starts.get((block.segment, block.start + block.size))
        if after is not None:
            self._take(after)
            block = Block(block.size + after.size, block.segment, block.start)
        before = self._ends.get((block.segment, block.start))
        if before is not None:
            self._take(before)
            block = Block(block.size + before.size, block.segment, before.start)
        self._give(block)

    def _take(self, block: Block) -> None:
        del self._free[bisect_left(self._free, block)]
        del self._starts[block.segment, block.start]
        del self._ends[block.segment, block.start + block.size]

    def _give(self, block: Block) -> None:
        insort(self._free, block)
        self._starts[block.segment, block.start] = block
        self._ends[block.segment, block.start + block.size] = block
