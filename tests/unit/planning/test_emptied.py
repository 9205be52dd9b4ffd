"""Whether waiting for room can help: the fleet with nothing running on it."""

from dataclasses import replace

from gpuplan.domain.fleet import Fleet
from gpuplan.planning.allocatable import account
from gpuplan.planning.emptied import emptied
from gpuplan.units import GIB
from tests.unit.planning.test_released import ALICE, card, host, process, running


def test_everything_that_is_held_comes_back() -> None:
    before = host(
        card(1, ALICE, process("one", 20)), running("one", 30), running("two", 30, loading=True), ram=4 * GIB
    )
    before = replace(before, ram_total_bytes=64 * GIB)
    (after,) = emptied(Fleet(hosts=(before,))).hosts
    (gpu,) = after.gpus
    assert (gpu.free_bytes, gpu.processes) == (80 * GIB, ())
    assert after.facts.docker is not None
    assert after.facts.docker.containers == ()
    assert after.ram_available_bytes == 64 * GIB
    assert account(gpu, (), after).allocatable_bytes == 80 * GIB


def test_what_nobody_reported_stays_unknown() -> None:
    fleet = Fleet(hosts=(host(card(None), ram=None),))
    assert emptied(fleet) == fleet


def test_what_is_kept_back_stays_so() -> None:
    kept = replace(card(10, ALICE), reserved_bytes=5 * GIB)
    (after,) = emptied(Fleet(hosts=(host(kept),))).hosts
    assert account(after.gpus[0], (), after).allocatable_bytes == 75 * GIB
