"""The model catalogue: what it holds, how a name finds a model, that compacting a configuration lost nothing."""

import gzip
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.repository import Evidence, Origin, Repository
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.errors import ModelError
from gpuplan.operations.models import profile_of
from gpuplan.sources.catalogue.models import file_name, find, load, lookup, near, siblings

CONFIGS = Path(__file__).parents[3] / "data" / "configs"
NAMES = tuple(model.name for model in load())


def read(path: Path) -> dict[str, Any] | None:
    packed = path.with_name(path.name + ".gz")
    if packed.exists():
        path = packed
    if not path.exists():
        return None
    content = path.read_bytes()
    document: dict[str, Any] = json.loads(gzip.decompress(content) if path is packed else content)
    return document


def published(name: str) -> Repository | None:
    config = read(CONFIGS / file_name(name))
    if config is None:
        return None
    beside = read(CONFIGS / file_name(name).replace(".json", ".hf_quant_config.json"))
    return Repository(name=name, origin=Origin.FILE, location=name, config=config, quantization=beside)


def test_the_catalogue_covers_the_families_people_serve() -> None:
    assert len(NAMES) >= 150
    assert len({name.casefold() for name in NAMES}) == len(NAMES)
    families = {model.family for model in load()}
    expected = {
        "Qwen3",
        "Qwen3.5",
        "Qwen3.6",
        "DeepSeek-V4",
        "GLM-5",
        "Kimi-K3",
        "MiniMax-M3",
        "Gemma-4",
        "gpt-oss",
        "Llama 4",
    }
    assert expected <= families
    assert "Other" not in {
        model.family for model in load() if model.name.startswith(("Qwen/", "nvidia/", "google/"))
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_model_is_described_and_its_facts_are_current(name: str) -> None:
    """Run tests/tools/make_model_catalogue.py without arguments when a builder changed what a model weighs."""
    model = find(name)
    repository = lookup(name)
    assert model is not None
    assert repository is not None
    assert (repository.name, repository.location, repository.origin) == (name, name, Origin.CATALOGUE)
    assert repository.evidence is Evidence.CONFIG
    profile = profile_of(repository, EngineArguments())[0]
    assert profile.recognised or profile.assumptions
    assert model.architecture == profile.architecture
    assert model.quantization == profile.quantization
    assert model.longest_context == profile.longest_context
    assert model.weights_bytes == rank_weights(profile, Split()).parameters > 0
    assert (model.parameters is None) is (not profile.recognised)


@pytest.mark.parametrize("name", NAMES)
def test_a_compacted_config_describes_the_same_model_as_the_published_file(name: str) -> None:
    original, stored = published(name), lookup(name)
    if original is None or name == "google/gemma-3-4b-it":  # its vendored copy has another vocabulary
        return
    assert stored is not None
    assert profile_of(stored, EngineArguments())[0] == profile_of(original, EngineArguments())[0]


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen3-32B", 32.76),
        ("Qwen/Qwen3-32B-FP8", 32.76),
        ("Qwen/Qwen3-8B-AWQ", 8.19),
        ("Qwen/Qwen3-235B-A22B", 235.09),
        ("nvidia/Qwen3-235B-A22B-NVFP4", 235.09),
        ("meta-llama/Llama-3.1-8B", 8.03),
        ("meta-llama/Llama-3.1-70B", 70.55),
        ("deepseek-ai/DeepSeek-R1", 671.03),
        ("mistralai/Mixtral-8x7B-v0.1", 46.70),
        ("openai/gpt-oss-120b", 116.83),
        ("openai/gpt-oss-20b", 20.91),
        ("google/gemma-3-1b-it", 1.00),
    ],
)
def test_parameters_are_those_of_the_model_card_however_it_is_quantized(name: str, billions: float) -> None:
    model = find(name)
    assert model is not None
    assert model.parameters is not None
    assert model.parameters / 1e9 == pytest.approx(billions, abs=0.006)


def test_every_model_tells_where_its_config_is_from() -> None:
    for model in load():
        assert len(model.source) >= 10, model.name
        assert not re.search(r"(^|[\s(])~?/\w|/home/|/work/|\.\./|__", model.source), model.source


def test_a_quantized_variant_names_a_release_of_the_catalogue() -> None:
    variants = [model for model in load() if model.base is not None]
    assert len(variants) >= 40
    for model in variants:
        assert model.base in NAMES
        assert model.quantization is not None
        assert model.name in siblings(str(model.base))


def test_siblings_come_with_8_bits_before_4() -> None:
    assert siblings("Qwen/Qwen3-235B-A22B") == ("Qwen/Qwen3-235B-A22B-FP8", "nvidia/Qwen3-235B-A22B-NVFP4")
    assert siblings("zai-org/glm-5.2") == ("zai-org/GLM-5.2-FP8", "nvidia/GLM-5.2-NVFP4")
    assert siblings("nobody/nothing") == ()


@pytest.mark.parametrize("reference", ["Qwen/Qwen3-32B", "qwen/QWEN3-32b", "Qwen3-32B", "qwen3-32b"])
def test_a_model_is_found_with_and_without_its_organization(reference: str) -> None:
    found = lookup(reference)
    assert found is not None
    assert found.name == "Qwen/Qwen3-32B"
    assert found.config["num_hidden_layers"] == 64


@pytest.mark.parametrize(
    "reference", ["", "/", "Qwen3", "Qwen/", "someone/Qwen3-32B", "Qwen/Qwen3-32B@main", "../x", "a/b/c"]
)
def test_what_is_no_catalogue_name_is_nothing(reference: str) -> None:
    assert lookup(reference) is None


def test_a_short_name_of_two_organizations_lists_them() -> None:
    with pytest.raises(
        ModelError,
        match=r"fits several models of the catalogue: RedHatAI/.* and neuralmagic/|neuralmagic/.* and RedHatAI/",
    ) as caught:
        lookup("meta-llama-3.1-70b-instruct-quantized.w8a8")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("name one of them, for example ")


def test_a_slip_of_the_finger_finds_the_model_that_was_meant() -> None:
    assert near("Qwen3-32")[0] == "Qwen/Qwen3-32B"
    assert near("Qwen/Qwen3_32B")[0] == "Qwen/Qwen3-32B"
    assert near("gpt-oss-120")[0] == "openai/gpt-oss-120b"
    assert near("llama-3.1-70b-instruct@main")[0] == "meta-llama/Llama-3.1-70B-Instruct"
    assert near("x" * 5000) == ()


def test_a_look_up_is_fast_once_the_index_is_read() -> None:
    load()
    fastest = 1.0
    for _ in range(5):
        start = time.perf_counter()
        lookup("nvidia/MiniMax-M3-NVFP4")
        fastest = min(fastest, time.perf_counter() - start)
    assert fastest < 0.01
