"""Models on this machine's disk as hosts have them: directories, and the hub's cache with its links."""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.safetensors_files import safetensors_file

COMMIT = "5f0b02c75b57c5855da9ae460ce51323ea669d8a"


def shard(number: int) -> bytes:
    """A whole file of weights, of a size of its own."""
    return safetensors_file({f"model.layers.{number}.weight": ("BF16", (8 + number, 16))})


def model_files(shards: int = 2) -> dict[str, bytes]:
    """A small model of several files with its index and tokenizer."""
    names = [f"model-{number + 1:05}-of-{shards:05}.safetensors" for number in range(shards)]
    weight_map = {f"model.layers.{number}.weight": name for number, name in enumerate(names)}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    return {
        "config.json": b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}',
        "tokenizer.json": b"{}",
        "README.md": b"# A model",
        "model.safetensors.index.json": json.dumps(index, indent=2).encode(),
        **{name: shard(number) for number, name in enumerate(names)},
    }


def in_directory(path: Path, files: Mapping[str, bytes] | None = None) -> Path:
    """The model as a directory."""
    for name, content in (model_files() if files is None else files).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def in_cache(
    home: Path, model: str, files: Mapping[str, bytes] | None = None, *, commit: str = COMMIT
) -> Path:
    """The model in the cache of the hub below `home`, as huggingface_hub lays it out; its snapshot."""
    root = home / "hub" / f"models--{model.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    for folder in (root / "blobs", root / "refs", snapshot):
        folder.mkdir(parents=True, exist_ok=True)
    (root / "refs" / "main").write_text(commit)
    for number, (name, content) in enumerate((model_files() if files is None else files).items()):
        blob = root / "blobs" / f"{number:040x}"
        blob.write_bytes(content)
        (snapshot / name).symlink_to(Path("../../blobs") / blob.name)
    return snapshot
