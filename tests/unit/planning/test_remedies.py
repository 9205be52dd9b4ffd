"""Every remedy, applied, makes the refused strategy fit; the smallest change comes first."""

import pytest

from gpuplan.domain.plan import Remedy, StrategyName, Verdict
from tests.fleets import host, of, planned, profile

MODEL = "Qwen__Qwen3-32B"
ENGINE = {"max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype", "gpu_memory_utilization", "dtype"}


def applied(remedy: Remedy, context: int, concurrency: int) -> Verdict:
    """The strategy's verdict once the remedy's change is made."""
    change = dict(remedy.change)
    arguments = " ".join(f"{flag} {value}" for flag, value in change.items() if remedy.kind in ENGINE)
    made = planned(
        MODEL,
        host("a", "H100", 1),
        arguments=arguments,
        utilization=0.9,
        context=change.get("--context", context),
        concurrency=change.get("--concurrency", concurrency),
    )
    return of(made, StrategyName.SINGLE_GPU).verdict


@pytest.mark.parametrize(("context", "concurrency"), [(32768, 1), (8192, 6), (40960, 1), (32768, 2)])
def test_remedies_work(context: int, concurrency: int) -> None:
    made = planned(MODEL, host("a", "H100", 1), utilization=0.9, context=context, concurrency=concurrency)
    result = of(made, StrategyName.SINGLE_GPU)
    assert result.verdict is Verdict.NO_FIT
    tried = [
        item for item in result.remedies if item.kind in ENGINE or item.kind in ("context", "concurrency")
    ]
    assert tried
    assert all(remedy.verified for remedy in result.remedies)
    for remedy in tried:
        assert applied(remedy, context, concurrency) is Verdict.FITS, remedy
    assert [item.size for item in result.remedies] == sorted(item.size for item in result.remedies)


def test_context_remedy_is_the_longest() -> None:
    made = planned(MODEL, host("a", "H100", 1), utilization=0.9, context=40960)
    (remedy,) = [item for item in of(made, StrategyName.SINGLE_GPU).remedies if item.kind == "context"]
    length = remedy.change["--context"]
    longer = planned(MODEL, host("a", "H100", 1), utilization=0.9, context=length + 64)
    assert of(longer, StrategyName.SINGLE_GPU).verdict is Verdict.NO_FIT


def test_quantized_sibling_is_offered_when_it_fits() -> None:
    made = planned(MODEL, host("a", "L40S", 1), siblings=(profile("Qwen__Qwen3-32B-FP8"),))
    kinds = {item.kind: item for item in of(made, StrategyName.SINGLE_GPU).remedies}
    assert kinds["sibling"].figures["weights_bytes"] < kinds["sibling"].figures["asked_bytes"]
    assert "more_gpus" in kinds


def test_another_strategy_is_a_remedy() -> None:
    made = planned(MODEL, host("a", "4090", 4))
    (remedy,) = [item for item in of(made, StrategyName.SINGLE_GPU).remedies if item.kind == "shape"]
    assert remedy.change == {"--strategy": "single_host"}
