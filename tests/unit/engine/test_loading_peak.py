"""What loading takes for a moment."""

import json

from gpuplan.engine.architectures.describe import describe
from gpuplan.engine.loading_peak import loading_peak
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Split, layer_bytes
from tests.fleets import CONFIGS, profile

V014, V033 = EngineVersion(0, 14), EngineVersion(0, 33)
PLAIN = profile("Qwen__Qwen3-32B")
WHILE_LOADING = describe(
    "Qwen/Qwen3-32B", json.loads((CONFIGS / "Qwen__Qwen3-32B.json").read_text()), quantization="fp8"
)


def test_nothing_for_weights_that_stay_as_they_are() -> None:
    assert loading_peak(PLAIN, Split(), V014) == 0
    assert loading_peak(profile("Qwen__Qwen3-32B-FP8"), Split(), V014) == 0


def test_before_0_16_every_layer_is_there_unquantized() -> None:
    beyond = (
        layer_bytes(PLAIN.layer_kinds[0], Split())[0] - layer_bytes(WHILE_LOADING.layer_kinds[0], Split())[0]
    )
    assert WHILE_LOADING.quantized_while_loading
    assert abs(loading_peak(WHILE_LOADING, Split(), V014) - 64 * beyond) < 64 * 1024


def test_later_one_layer_at_a_time() -> None:
    assert loading_peak(WHILE_LOADING, Split(), V033) * 60 < loading_peak(WHILE_LOADING, Split(), V014)
    assert loading_peak(WHILE_LOADING, Split(), V033) > 0


def test_repacking_copies_the_largest_tensor() -> None:
    model = profile("Qwen__Qwen2.5-7B-Instruct-AWQ")
    assert loading_peak(model, Split(), V033) == 3 * (2 * 18944 * 3584 // 2)
