"""What the stand-in knows of a model: its `config.json`, and the sizes its weight files state."""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Unusable(Exception):
    """In vLLM's, transformers' or safetensors' words."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """Figures of the whole model, before it is split."""

    weights: int
    """Bytes."""
    kv_per_token: int
    """Bytes of KV cache for one token, all layers."""
    heads: int
    longest: int
    """Tokens of a sequence it was made for."""


def read(name: str, *, dummy: bool) -> Model:
    """The model at a path of this container. Raises Unusable; names of a hub are not to be had."""
    directory = Path(name)
    if not directory.is_absolute():
        raise Unusable(
            f"OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the "
            f"cached files.\nCheck your internet connection or see how to run the library in offline mode: {name}"
        )
    if not directory.is_dir():
        raise Unusable(
            f"huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
            f"'namespace/repo_name': '{name}'. Use `repo_type` argument if needed."
        )
    try:
        config = json.loads((directory / "config.json").read_text())
    except OSError:
        raise Unusable(
            f"ValueError: No supported config format found in {name}. Please verify that the model is complete"
        ) from None
    files = sorted(directory.glob("*.safetensors"))
    if not (files or dummy):
        raise Unusable(f"RuntimeError: Cannot find any model weights with `{name}`")
    _all_there(directory)
    return _figures(config, 0 if dummy else sum(_weights(path) for path in files))


def _all_there(directory: Path) -> None:
    index = directory / "model.safetensors.index.json"
    if not index.exists():
        return
    named = set(json.loads(index.read_text()).get("weight_map", {}).values())
    missing = sorted(name for name in named if not (directory / name).exists())
    if missing:
        raise Unusable(f'FileNotFoundError: No such file or directory: "{directory / missing[0]}"')


def _weights(path: Path) -> int:
    """Bytes of the tensors in a file, which must reach as far as its header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))[0]
        header = json.loads(file.read(length)) if length + 8 <= size else {}
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    if not header or max(ends, default=0) + 8 + length > size:
        raise Unusable(
            "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully "
            f"covered ({path})"
        )
    return int(max(ends, default=0))


def _figures(config: dict[str, Any], weights: int) -> Model:
    inner = config.get("text_config", config)
    heads, layers = int(inner.get("num_attention_heads", 1)), int(inner.get("num_hidden_layers", 1))
    hidden = int(inner.get("hidden_size", 64))
    size = int(inner.get("head_dim") or hidden // heads)
    kv_heads = int(inner.get("num_key_value_heads") or heads)
    if not weights:
        wide = int(inner.get("intermediate_size", 4 * hidden))
        weights = 2 * layers * (4 * hidden * hidden + 3 * hidden * wide)
    return Model(
        weights=weights,
        kv_per_token=2 * 2 * layers * kv_heads * size,
        heads=heads,
        longest=int(inner.get("max_position_embeddings", 4096)),
    )
