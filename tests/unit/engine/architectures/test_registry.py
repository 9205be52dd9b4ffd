"""The registry names exactly what the family modules describe."""

import pkgutil
from importlib import import_module

import pytest

from gpuplan.engine import architectures
from gpuplan.engine.architectures.registry import FAMILIES, MODULE_OF, builder_of


def test_every_builder_is_registered_under_its_module() -> None:
    described = {
        (architecture, module.name)
        for module in pkgutil.iter_modules(architectures.__path__)
        for architecture in getattr(import_module(f"{architectures.__name__}.{module.name}"), "BUILDERS", ())
    }
    assert described == set(MODULE_OF.items())


def test_no_architecture_is_described_twice() -> None:
    assert len(MODULE_OF) == sum(len(names) for names in FAMILIES.values())


@pytest.mark.parametrize(
    "architecture",
    ["LlamaModel", "Qwen3ForSequenceClassification", "Qwen2ForRewardModel", "LlamaBidirectionalModel"],
)
def test_decoders_have_further_names(architecture: str) -> None:
    assert builder_of(architecture) is not None


@pytest.mark.parametrize("architecture", ["", "ForCausalLM", "Model", "NobodyForCausalLM", "NobodyModel"])
def test_what_nobody_describes_is_unknown(architecture: str) -> None:
    assert builder_of(architecture) is None
