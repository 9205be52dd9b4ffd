"""torch's caching allocator, step by step."""

from gpuplan.engine.caching_allocator import CachingAllocator
from gpuplan.units import MIB


def allocated(*sizes: int, whole: int | None = None) -> int:
    memory = CachingAllocator(whole)
    for size in sizes:
        memory.allocate(size)
    return memory.allocated


def test_small_tensors_are_rounded_to_512_bytes() -> None:
    assert allocated(1) == 512
    assert allocated(513, MIB) == 1024 + MIB


def test_a_rest_of_up_to_one_mebibyte_stays_with_a_large_tensor() -> None:
    assert allocated(43 * MIB) == 44 * MIB
    assert allocated(40 * MIB + MIB // 2) == 40 * MIB + MIB // 2
    assert allocated(44 * MIB) == 44 * MIB


def test_tensors_of_one_to_ten_mebibytes_share_twenty() -> None:
    assert allocated(6 * MIB) == 6 * MIB
    assert allocated(6 * MIB, 6 * MIB, 7 * MIB) == 20 * MIB


def test_a_freed_block_is_taken_again_with_its_neighbours() -> None:
    memory = CachingAllocator()
    first, second = memory.allocate(5 * MIB), memory.allocate(5 * MIB)
    memory.release(first)
    memory.release(second)
    assert memory.allocated == 0
    # all 20 MiB are one block again, so 19.5 MiB fit and the rest is not split off
    memory.allocate(19 * MIB + MIB // 2)
    assert memory.allocated == 20 * MIB


def test_large_tensors_keep_their_segment_under_a_split_limit() -> None:
    assert allocated(52 * MIB + MIB // 2) == 52 * MIB + MIB // 2
    assert allocated(52 * MIB + MIB // 2, whole=20 * MIB) == 54 * MIB
    assert allocated(6 * MIB, whole=20 * MIB) == 6 * MIB


def test_under_a_split_limit_a_free_segment_is_taken_whole_when_it_is_not_much_larger() -> None:
    memory = CachingAllocator(20 * MIB)
    memory.release(memory.allocate(64 * MIB))
    memory.allocate(48 * MIB)
    assert memory.allocated == 64 * MIB
    memory.allocate(6 * MIB)
    assert memory.allocated == 70 * MIB
    other = CachingAllocator(20 * MIB)
    other.release(other.allocate(64 * MIB))
    other.allocate(44 * MIB)
    assert other.allocated == 44 * MIB
