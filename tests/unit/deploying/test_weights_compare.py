"""Whether a model is whole and the same on every host."""

from dataclasses import replace
from typing import Any

from gpuplan.deploying.weights_compare import faults, is_mendable, needed_weights, weight_bytes
from gpuplan.deploying.weights_probe import FoundPlace, PlaceKind
from gpuplan.domain.fact import Fact

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
FILES = {"config.json": 700, "tokenizer.json": 9000, "README.md": 50, SHARDS[0]: 5000, SHARDS[1]: 4000}


def place(files: dict[str, int] | None = None, **changes: Any) -> FoundPlace:
    whole = FoundPlace(
        kind=PlaceKind.DIRECTORY,
        asked="/data/models/m",
        path="/data/models/m",
        files=tuple(sorted((FILES if files is None else files).items())),
        promised=((SHARDS[0], 5000), (SHARDS[1], 4000)),
        indexed=SHARDS,
        digests=(("config.json", "c1"), ("model.safetensors.index.json", "i1")),
    )
    return replace(whole, **changes)


def without(*names: str) -> dict[str, int]:
    return {name: size for name, size in FILES.items() if name not in names}


def told(facts: tuple[Fact, ...]) -> list[tuple[str, str]]:
    return [(item.code, item.subject["host"]) for item in facts]


def test_whole_and_equal() -> None:
    other = place({**FILES, "README.md": 7, "LICENSE": 3, "consolidated.safetensors": 9000})
    assert faults({"h1": place(), "h2": other}) == ()


def test_a_file_is_missing_on_one_host() -> None:
    found = faults({"h1": place(), "h2": place(without(SHARDS[1])), "h3": place()})
    assert told(found) == [("GP841", "h2")]
    assert found[0].figures["missing"] == (SHARDS[1],)
    assert found[0].figures["have"] == ("h1", "h3")
    assert is_mendable(found[0])


def test_a_file_the_index_names_is_missing_everywhere() -> None:
    found = faults({"h1": place(without(SHARDS[1]))})
    assert (told(found), found[0].figures["have"]) == ([("GP841", "h1")], ())


def test_a_link_that_leads_nowhere_is_a_missing_file() -> None:
    found = faults({"h1": place(without("tokenizer.json"), broken=("tokenizer.json",))})
    assert found[0].figures["broken"] == ("tokenizer.json",)


def test_a_file_is_shorter_on_one_host() -> None:
    found = faults({"h1": place({**FILES, SHARDS[0]: 4321}), "h2": place()})
    assert told(found) == [("GP842", "h1")]
    figures = found[0].figures
    assert (figures["file"], figures["bytes"], figures["expected_bytes"], figures["have"]) == (
        SHARDS[0],
        4321,
        5000,
        "h2",
    )
    assert not is_mendable(found[0])


def test_a_file_that_is_short_everywhere_is_known_by_its_own_head() -> None:
    short = place({**FILES, SHARDS[1]: 3999})
    found = faults({"h1": short, "h2": short})
    assert told(found) == [("GP842", "h1"), ("GP842", "h2")]
    assert found[0].figures["have"] is None


def test_without_heads_the_largest_is_right() -> None:
    files = {"config.json": 1, "pytorch_model.bin": 100}
    plain = place(files, promised=(), indexed=())
    short = place({**files, "pytorch_model.bin": 99}, promised=(), indexed=())
    assert told(faults({"h1": plain, "h2": short})) == [("GP842", "h2")]


def test_a_pointer_of_git_lfs_is_no_weight() -> None:
    found = faults({"h1": place({**FILES, SHARDS[0]: 134}, promised=((SHARDS[0], -1), (SHARDS[1], 4000)))})
    assert (told(found), found[0].figures["pointer"]) == ([("GP842", "h1")], True)


def test_another_revision_is_told_by_its_digests_and_sizes() -> None:
    other = place(digests=(("config.json", "c2"), ("model.safetensors.index.json", "i1")))
    found = faults({"h1": place(), "h2": other})
    assert (told(found), found[0].figures["files"]) == ([("GP843", "h2")], ("config.json",))
    assert (found[0].figures["other"], is_mendable(found[0])) == ("h1", False)
    other = place({**FILES, "tokenizer.json": 9001})
    assert faults({"h1": place(), "h2": other})[0].figures["files"] == ("tokenizer.json",)


def test_links_out_of_the_directory() -> None:
    found = faults({"h1": place(outside=(SHARDS[0], "README.md"))})
    assert (told(found), found[0].figures["files"]) == ([("GP843", "h1")], (SHARDS[0],))


def test_a_directory_without_weights() -> None:
    bare = place({"config.json": 1}, indexed=(), promised=())
    assert told(faults({"h1": bare})) == [("GP841", "h1")]
    assert faults({"h1": bare}, config_only=True) == ()


def test_dummy_weights_need_the_same_configuration() -> None:
    other = place(without(*SHARDS), digests=(("config.json", "c2"),))
    assert told(faults({"h1": place(), "h2": other}, config_only=True)) == [("GP843", "h2")]


def test_which_weights_an_engine_reads() -> None:
    def weights(*names: str) -> tuple[str, ...]:
        return needed_weights((place(dict.fromkeys(names, 1), indexed=()),))

    assert weights("a.safetensors", "b.bin", "consolidated.safetensors") == ("a.safetensors",)
    assert weights("consolidated.safetensors", "params.json") == ("consolidated.safetensors",)
    assert weights("pytorch_model.bin", "x.pt") == ("pytorch_model.bin",)
    assert weights("m.gguf", "onnx/model.bin") == ("m.gguf",)
    assert weights("config.json") == ()
    assert weight_bytes(place()) == 9000
