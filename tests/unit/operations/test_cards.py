"""Cards of a fleet found in the catalogue, and estimates that say how fast they are."""

from gpuplan.domain.throughput import NoThroughput, Throughput
from gpuplan.operations.cards import card_of
from gpuplan.operations.estimate import make_estimate
from gpuplan.operations.plan import ServingOptions
from gpuplan.units import GIB

OPTIONS = ServingOptions(context="8k", concurrency=4)


def test_a_card_is_found_by_the_name_the_driver_prints() -> None:
    found = card_of("NVIDIA H100 80GB HBM3", int(79.19 * GIB))
    assert found is not None
    assert found.name == "H100-80GB"


def test_a_card_with_other_memory_keeps_its_speed() -> None:
    found = card_of("NVIDIA GeForce RTX 4090", 48 * GIB)
    assert found is not None
    assert found.name == "RTX-4090"


def test_a_name_that_several_cards_bear_stays_open_without_a_size() -> None:
    assert card_of("NVIDIA GeForce RTX 5060 Ti", None) is None
    assert card_of("Imaginary X1", 80 * GIB) is None


def test_an_estimate_says_how_fast() -> None:
    found = make_estimate("Qwen/Qwen3-32B", "H100-80GB:2", None, OPTIONS).candidate.throughput
    assert isinstance(found, Throughput)
    assert (found.decode.users, found.decode.context) == (4, 8000)


def test_an_estimate_of_hardware_known_by_its_size_takes_the_likeliest_card() -> None:
    named = make_estimate("Qwen/Qwen3-32B", "H100-80GB:2", None, OPTIONS).candidate.throughput
    sized = make_estimate("Qwen/Qwen3-32B", "mine=79.18GiB:2", None, OPTIONS).candidate.throughput
    assert isinstance(named, Throughput)
    assert isinstance(sized, Throughput)
    assert sized.decode.per_user == named.decode.per_user
    odd = make_estimate("Qwen/Qwen3-32B", "mine=77GiB:2", None, OPTIONS).candidate.throughput
    assert isinstance(odd, NoThroughput)


def test_an_estimate_that_does_not_fit_has_no_speed() -> None:
    assert make_estimate("Qwen/Qwen3-32B", "RTX-4090:2", None, OPTIONS).candidate.throughput is None
    assert make_estimate("Qwen/Qwen3-32B", "H100-80GB:2", "20GiB", OPTIONS).candidate.throughput is None
