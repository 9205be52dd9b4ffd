"""The draft model beside a target: read like it, guessed where it cannot be, told by the plan."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.repository import Origin, Repository, TensorIndex, TensorKind
from gpuplan.domain.workload import EngineArguments, Workload
from gpuplan.errors import ModelError
from gpuplan.operations.models import Model, model_of, open_repository
from gpuplan.operations.question import Planner, described_by
from gpuplan.planning.draft_notes import about_draft
from gpuplan.planning.planner import model_summary
from gpuplan.planning.request import PlanRequest
from gpuplan.present.shared_findings import WORDS
from gpuplan.units import GIB

TARGET = "Qwen/Qwen3-32B"
HEAD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 1,
    "vocab_size": 151936,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}


def repository(config: dict[str, Any] | None = None, tensors: tuple[str, ...] | None = None) -> Repository:
    kind = TensorKind(dtype="BF16", shape=(2, 2), bytes=8)
    index = None if tensors is None else TensorIndex(names=tensors, kinds=(kind,) * len(tensors))
    return Repository(
        name="draft", origin=Origin.HUB, location="a/draft", config=config or HEAD, tensors=index
    )


def model(opened: Repository | ModelError, **speculative: Any) -> tuple[Model, list[str]]:
    """The target with a draft that the opener gives, and what it was asked to open."""
    asked = []

    def opener(reference: str, engine: EngineArguments) -> Repository:
        asked.append(reference)
        assert engine.revision is None
        if isinstance(opened, ModelError):
            raise opened
        return opened

    engine = EngineArguments(revision="main", speculative_config=speculative or None)
    return model_of(open_repository(TARGET, EngineArguments()), engine, opener=opener), asked


def facts(found: Model, **speculative: Any) -> list[Fact]:
    engine = EngineArguments(speculative_config=speculative)
    return about_draft(
        PlanRequest(fleet=Fleet(hosts=()), profile=found.profile, workload=Workload(engine=engine))
    )


def test_no_draft_is_opened_where_none_is_asked_for() -> None:
    found, asked = model(repository())
    assert found.profile.draft is None
    assert not asked
    found, asked = model(repository(), method="ngram", num_speculative_tokens=3)
    assert found.profile.draft is None
    assert not asked
    assert not facts(found, method="ngram", num_speculative_tokens=3)


def test_draft_is_read_at_a_revision_of_its_own() -> None:
    _, asked = model(repository(), method="eagle3", model="a/draft", revision="v2")
    assert asked == ["a/draft@v2"]
    _, asked = model(repository(), method="eagle3", model="a/draft")
    assert asked == ["a/draft"]


def test_read_draft_is_counted_and_told() -> None:
    wanted = {"method": "eagle3", "model": "a/draft"}
    found, _ = model(repository(tensors=("lm_head.weight",)), **wanted)
    draft = found.profile.draft
    assert draft is not None
    assert draft.holds == frozenset({"lm_head"})
    assert (draft.method, draft.states, draft.missing) == ("eagle3", 3, "")
    (told,) = facts(found, **wanted)
    assert told.code == "GP506"
    assert told.figures["cached_layers"] == 1
    assert 1.0 * GIB < told.figures["weights_bytes"] < 1.6 * GIB
    assert model_summary(found.profile)["draft"] == {
        "name": "a/draft",
        "method": "eagle3",
        "cached_layers": 1,
        "missing": None,
    }
    assert "a/draft (eagle3) is counted" in WORDS["GP506"](told.subject, told.figures)[0]


def test_draft_takes_the_target_s_type() -> None:
    found, _ = model(repository({**HEAD, "torch_dtype": "float16"}), method="eagle3", model="a/draft")
    assert found.profile.draft is not None
    assert found.profile.draft.profile is not None
    assert found.profile.draft.profile.dtype == found.profile.dtype == "bfloat16"


def test_unread_draft_is_guessed_and_says_why() -> None:
    wanted = {"method": "eagle3", "model": "a/draft"}
    found, _ = model(ModelError("a/draft: offline"), **wanted)
    draft = found.profile.draft
    assert draft is not None
    assert draft.missing == "a/draft: offline"
    (told,) = facts(found, **wanted)
    assert told.code == "GP504"
    assert told.figures["assumed_bytes"] > GIB
    said, because, _ = WORDS["GP504"](told.subject, told.figures)
    assert "set aside" in said
    assert "a/draft: offline" in because


def test_unread_plain_draft_is_as_large_as_its_name_says() -> None:
    wanted = {"method": "draft_model", "model": "a/Little-0.6B"}
    found, _ = model(ModelError("offline"), **wanted)
    (told,) = facts(found, **wanted)
    assert told.figures["assumed_bytes"] == pytest.approx(1.2e9, rel=0.01)


def test_unread_draft_of_unknown_size_is_left_out() -> None:
    wanted = {"method": "draft_model", "model": "a/draft"}
    found, _ = model(ModelError("offline"), **wanted)
    (told,) = facts(found, **wanted)
    assert told.code == "GP504"
    assert told.figures["assumed_bytes"] is None
    assert "not counted" in WORDS["GP504"](told.subject, told.figures)[0]


def test_draft_that_makes_no_sense_is_unread() -> None:
    found, _ = model(repository({**HEAD, "hidden_size": -1}), method="eagle3", model="a/draft")
    assert found.profile.draft is not None
    assert "hidden_size" in found.profile.draft.missing


def test_draft_in_a_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(HEAD))
    engine = EngineArguments(speculative_config={"method": "eagle3", "model": str(tmp_path)})
    found = model_of(open_repository(TARGET, engine), engine)
    assert found.profile.draft is not None
    assert found.profile.draft.profile is not None
    assert not found.profile.draft.missing


def test_another_draft_is_another_description() -> None:
    plain, drafted = (
        Workload(engine=EngineArguments(speculative_config=config))
        for config in (None, {"method": "eagle3", "model": "a/draft"})
    )
    assert described_by(TARGET, plain) != described_by(TARGET, drafted)


def test_unread_draft_is_tried_again_and_a_read_one_is_not() -> None:
    opened: list[str] = []
    offline = [True]

    def opener(reference: str, engine: EngineArguments) -> Repository:
        opened.append(reference)
        if reference == "a/draft":
            if offline[0]:
                raise ModelError("offline")
            return repository()
        return open_repository(reference, engine)

    planner = Planner(opener)
    workload = Workload(engine=EngineArguments(speculative_config={"method": "eagle3", "model": "a/draft"}))
    planner.model(TARGET, workload)
    offline[0] = False
    found = [planner.model(TARGET, workload) for _ in range(2)]
    assert found[0] is found[1]
    assert found[0].profile.draft is not None
    assert not found[0].profile.draft.missing
    assert opened == [TARGET, "a/draft", "a/draft"]
