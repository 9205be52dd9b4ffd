import json
import shutil
from pathlib import Path

import pytest

from gpuplan.domain.repository import Evidence, Origin, Repository
from gpuplan.errors import ModelError
from gpuplan.sources.huggingface import HubAccess
from gpuplan.sources.model_files import open_model
from tests.safetensors_files import safetensors_file

CONFIG = {"model_type": "llama", "num_hidden_layers": 2}
ONE = safetensors_file({"a": ("BF16", (2, 2))})
TWO = safetensors_file({"b": ("BF16", (4, 2))})


def _open(
    reference: object, catalogue: dict[str, Repository] | None = None, near: tuple[str, ...] = ()
) -> Repository:
    names = catalogue or {}
    return open_model(
        str(reference), catalogue_lookup=names.get, near_names=lambda _: near, hub=HubAccess(offline=True)
    )


def _write(directory: Path, files: dict[str, bytes | dict[str, object]]) -> Path:
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(
            content if isinstance(content, bytes) else json.dumps(content).encode()
        )
    return directory


def _index(files: dict[str, str], total: object = 24) -> dict[str, object]:
    return {"metadata": {"total_size": total}, "weight_map": files}


def test_a_sharded_directory_gives_headers_and_index(tmp_path: Path) -> None:
    index = _index({"a": "model-1.safetensors", "b": "model-2.safetensors"})
    directory = _write(
        tmp_path / "llama",
        {
            "config.json": {**CONFIG},
            "model-1.safetensors": ONE,
            "model-2.safetensors": TWO,
            "model.safetensors.index.json": index,
            "consolidated.safetensors": b"not read",
            "hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4"}},
        },
    )
    repository = _open(directory)
    assert repository.evidence is Evidence.SAFETENSORS_HEADERS
    assert repository.tensors is not None
    assert repository.tensors.total_bytes == 24
    assert repository.index_total_bytes == 24
    assert repository.quantization == {"quantization": {"quant_algo": "NVFP4"}}
    assert (repository.name, repository.origin, repository.notes) == ("llama", Origin.DIRECTORY, ())


def test_consolidated_files_count_only_without_others(tmp_path: Path) -> None:
    both = _write(
        tmp_path / "a",
        {"config.json": {**CONFIG}, "model-1.safetensors": ONE, "consolidated.safetensors": TWO},
    )
    alone = _write(tmp_path / "b", {"config.json": {**CONFIG}, "consolidated.safetensors": TWO})
    for directory, size in ((both, 8), (alone, 16)):
        tensors = _open(directory).tensors
        assert tensors is not None
        assert tensors.total_bytes == size


@pytest.mark.parametrize(
    "second", [None, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"]
)
def test_a_missing_shard_falls_back_to_the_index(tmp_path: Path, second: bytes | None) -> None:
    files: dict[str, bytes | dict[str, object]] = {
        "config.json": {**CONFIG},
        "model-1.safetensors": ONE,
        "model.safetensors.index.json": _index({"a": "model-1.safetensors", "b": "model-2.safetensors"}),
    }
    if second is not None:
        files["model-2.safetensors"] = second
    repository = _open(_write(tmp_path / "m", files))
    assert repository.tensors is None
    assert repository.evidence is Evidence.SAFETENSORS_INDEX
    assert "1 of 2 safetensors files" in repository.notes[0]


def test_weights_in_another_format_fall_back_to_the_config(tmp_path: Path) -> None:
    repository = _open(_write(tmp_path / "m", {"config.json": {**CONFIG}, "pytorch_model.bin": b"x"}))
    assert repository.evidence is Evidence.CONFIG
    assert "no safetensors files" in repository.notes[0]


def test_a_truncated_shard_is_an_error_that_names_it(tmp_path: Path) -> None:
    directory = _write(tmp_path / "m", {"config.json": {**CONFIG}, "model.safetensors": ONE[:-3]})
    with pytest.raises(ModelError, match=r"model\.safetensors: .*truncated"):
        _open(directory)


@pytest.mark.parametrize("file", ["../../etc/passwd", "/etc/passwd", "a/../../b", "", "a\\b"])
def test_an_index_cannot_point_outside_its_directory(tmp_path: Path, file: str) -> None:
    directory = _write(
        tmp_path / "m", {"config.json": {**CONFIG}, "model.safetensors.index.json": _index({"a": file})}
    )
    with pytest.raises(ModelError, match="outside the model"):
        _open(directory)


@pytest.mark.parametrize("total", [None, "24", -1, True, 2**70, 24.0])
def test_an_odd_total_in_the_index_is_not_believed(tmp_path: Path, total: object) -> None:
    directory = _write(
        tmp_path / "m",
        {"config.json": {**CONFIG}, "model.safetensors.index.json": _index({"a": "x.safetensors"}, total)},
    )
    assert _open(directory).index_total_bytes == (24 if total == 24.0 else None)


def test_any_json_file_is_a_config_with_its_quantization_beside_it(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "org__m.json": {**CONFIG},
            "org__m.hf_quant_config.json": {"a": 1},
            "hf_quant_config.json": {"b": 2},
            "config.json": {**CONFIG},
        },
    )
    assert _open(tmp_path / "org__m.json").quantization == {"a": 1}
    assert _open(tmp_path / "org__m.json").name == "org__m"
    assert _open(tmp_path / "config.json").quantization == {"b": 2}
    assert _open(tmp_path / "config.json").evidence is Evidence.CONFIG


def test_a_path_comes_before_the_catalogue_and_that_before_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    known = Repository(name="org/m", origin=Origin.CATALOGUE, location="org/m", config={})
    assert _open("org/m", {"org/m": known}) is known
    _write(tmp_path / "org", {})
    _write(tmp_path / "org" / "m", {"config.json": {**CONFIG}})
    assert _open("org/m", {"org/m": known}).origin is Origin.DIRECTORY
    shutil.rmtree(tmp_path / "org")
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE"):
        open_model(
            "org/m",
            catalogue_lookup=lambda _: None,
            hub=HubAccess(offline=True, summaries=tmp_path / "s", cache_dir=tmp_path / "c"),
        )


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("", "empty"),
        ("./none", "no such file"),
        ("/no/such/place", "no such file"),
        ("none.json", "no such file"),
        ("a/b/c", "no such file"),
        ("~nobody-here/x", "no such file"),
        ("a\\b", "no such file"),
        ("-x", "no hub id"),
        ("org/na me", "no hub id"),
        ("org/a--b", "no hub id"),
        ("org/m@bad revision", "no hub id"),
        ("x" * 5000, "no hub id"),
        ("a\0b", "empty"),
    ],
)
def test_what_is_nothing_is_refused(reference: str, says: str) -> None:
    with pytest.raises(ModelError) as failure:
        _open(reference)
    assert says in failure.value.message
    assert failure.value.hint


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(ModelError) as failure:
        _open("qwen3-8", near=("Qwen/Qwen3-8B",))
    assert "Qwen/Qwen3-8B" in (failure.value.hint or "")
    with pytest.raises(ModelError) as failure:
        _open("Qwen/Qwen3-8", near=("Qwen/Qwen3-8B",))
    assert "Qwen/Qwen3-8B" in (failure.value.hint or "")


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("params.json", "Mistral"),
        ("adapter_config.json", "LoRA"),
        ("model_index.json", "diffusers"),
        ("x.gguf", "GGUF"),
        ("README.md", "no config.json"),
    ],
)
def test_a_directory_without_config_says_what_it_is(tmp_path: Path, file: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        _open(_write(tmp_path / "m", {file: b"{}"}))


def test_a_file_of_weights_is_not_a_model(tmp_path: Path) -> None:
    _write(tmp_path, {"model.safetensors": ONE, "notes.txt": b""})
    with pytest.raises(ModelError, match="file of weights"):
        _open(tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="not a model"):
        _open(tmp_path / "notes.txt")
