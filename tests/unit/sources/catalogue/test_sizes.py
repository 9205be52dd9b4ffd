"""Hardware given as a size alone: which card is taken for it, and what stays unsaid."""

import pytest

from gpuplan.domain.fleet import Basis
from gpuplan.sources.catalogue.accelerators import as_gpus, load, parse_gpu_option
from gpuplan.sources.catalogue.sizes import kinds_of_size
from gpuplan.units import GIB


def taken_for(gib: str) -> list[str]:
    return [card.name for card in parse_gpu_option(f"custom={gib}GiB")[0].taken_for]


@pytest.mark.parametrize(
    ("gib", "card"),
    [
        ("79.18", "H100-80GB"),
        ("79.19", "H100-80GB"),
        ("79.15", "A100-80GB"),
        ("79.25", "A100-80GB"),
        ("79.32", "A100-80GB"),
        ("39.39", "A100-40GB-PCIE"),
        ("23.52", "RTX-4090"),
        ("23.65", "RTX-4090"),
        ("23.58", "RTX-3090"),
        ("22.03", "L4"),
        ("14.56", "T4"),
        ("14.75", "T4"),
        ("44.39", "L40S"),
        ("94.97", "RTX-PRO-6000"),
        ("139.8", "H200"),
        ("267.69", "B300"),
        ("119.63", "GB10"),
        ("121.69", "GB10"),
        ("191.98", "MI300X"),
    ],
)
def test_a_size_of_two_decimals_tells_the_card(gib: str, card: str) -> None:
    assert taken_for(gib) == [card]


def test_every_measured_card_is_found_by_the_sizes_it_reports() -> None:
    """A card found by its own size is itself or one the engine treats alike."""
    for card in load():
        if card.variant_of or card.memory_basis is not Basis.MEASURED or card.backend == "cann":
            continue
        for size in (card.memory_bytes, *card.also_bytes):
            found = kinds_of_size(load(), size)
            assert (card.compute_capability, card.unified) in {
                (kind.compute_capability, kind.unified) for kind in found
            }, card.name


@pytest.mark.parametrize("gib", ["60", "24", "80", "16", "8", "122.2", "79.5"])
def test_other_sizes_and_nominal_ones_tell_nothing(gib: str) -> None:
    custom = parse_gpu_option(f"custom={gib}GiB")[0]
    assert (custom.taken_for, custom.compute_capability, custom.unified) == ((), None, False)


@pytest.mark.parametrize(("gib", "card"), [("15.99", "RTX-4070-TI-SUPER"), ("31.84", "RTX-5090")])
def test_the_size_windows_reports_of_a_geforce_card(gib: str, card: str) -> None:
    assert taken_for(gib) == [card]


def test_integrated_gpus_report_what_the_firmware_left() -> None:
    assert taken_for("120.5") == ["GB10"]
    assert taken_for("119.5") == []


def test_regional_variants_are_taken_only_by_name() -> None:
    assert all(card.variant_of is None for card in kinds_of_size(load(), round(79.25 * GIB)))
    names = {card.name for card in load()}
    assert {card.variant_of for card in load() if card.variant_of} <= names


def test_cards_that_differ_are_all_kept_newest_first() -> None:
    cards = [card for card in load() if card.name in ("RTX-4500-ADA", "TITAN-RTX")]
    assert [kind.name for kind in kinds_of_size(cards, round(23.53 * GIB))] == ["RTX-4500-ADA", "TITAN-RTX"]


def test_the_name_stays_what_was_given() -> None:
    custom, count = parse_gpu_option("mine=121.69GiB:2")
    first, second = as_gpus(custom, count)
    assert {first.name, second.name, custom.name} == {"mine"}
    assert (first.compute_capability, first.unified) == ("12.1", True)
    assert [kind.name for kind in first.kinds] == ["NVIDIA GB10"]


def test_a_named_card_of_another_size_is_taken_for_nothing_else() -> None:
    assert parse_gpu_option("L40S=79.18GiB")[0].taken_for == ()
