"""models.yaml → `ModelsFile`: the models of `gpuplan plan -f`, each with what is asked of it; faults name file, line and key."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuplan.sources.documents import Faults, Location, did_you_mean, shown
from gpuplan.sources.inventory_schema import LABELS, NAME, TEXT
from gpuplan.sources.key_tables import Key, Schema, json_schema, list_of, scalar, table, whole

if TYPE_CHECKING:
    from gpuplan.sources.yaml_tree import Node

MAX_BYTES = 2 * 1024**2
MAX_MODELS = 1000
MAX_REPLICAS = 64
MAX_PRIORITY = 1000
_NAME = r"[a-z0-9](?:[a-z0-9._-]{0,42}[a-z0-9])?"
"""Of a deployment, with room for the number of a replica."""
_HINT = "`gpuplan schema models` prints every key; docs/packing.md explains them"
_MISSING = "docs/packing.md has an example"


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _deployment(value: Any) -> str:
    text = str(getattr(value, "text", value))
    if isinstance(value, bool) or not re.fullmatch(_NAME, text):
        raise ValueError(
            f"{shown(text)!r} is no name of a deployment: lower-case letters, digits and . _ - between them, 44 at most"
        )
    return text


DEPLOYMENT = scalar(_deployment, {"type": ["string", "integer"], "pattern": f"^{_NAME}$"})
FLAG = scalar(_flag, {"type": "boolean"})
_SERVING = {
    "context": Key(TEXT, "tokens per request, 32768, 32K or max"),
    "concurrency": Key(whole(1, 10**6), "requests of that length at once"),
    "kv_cache_dtype": Key(TEXT),
    "category": Key(TEXT),
    "executor": Key(TEXT, "auto, ray or mp"),
    "image": Key(TEXT),
    "vllm_version": Key(TEXT),
    "vram_claim": Key(TEXT, "it needs this much VRAM in all; nothing is estimated"),
    "ram_claim": Key(TEXT, "RAM needed on every host"),
    "no_distributed": Key(FLAG, "keep a replica on one host"),
    "no_calibration": Key(FLAG, "ignore what earlier starts measured"),
    "args": Key(list_of(TEXT, most=256), "arguments of vLLM, a word each"),
    "share": Key(FLAG, "share GPUs: it claims the part of a GPU that its need comes to"),
    "replicas": Key(whole(1, MAX_REPLICAS), "copies on disjoint GPUs"),
    "priority": Key(whole(1, MAX_PRIORITY), "counts as so many models of priority 1"),
    "hosts": Key(list_of(NAME, least=1), "only on these hosts"),
    "labels": Key(LABELS, "only on hosts with all these labels"),
}
DEFAULTS = table("SharedModelKeys", _SERVING, "Keys a model may have and `defaults` may give to all of them.")
MODEL = table(
    "ModelKeys",
    {
        "model": Key(TEXT, "Hugging Face id, directory, config.json or catalogue name", required=True),
        "name": Key(DEPLOYMENT, "of the deployment; from the model if left out"),
        **_SERVING,
        "gpus": Key(list_of(TEXT, least=1), "only on these GPUs, HOST:IDX[,IDX] each"),
        "anti_affinity": Key(
            list_of(DEPLOYMENT), "models that share no host with it; its own name: nor do its replicas"
        ),
    },
)
ROOT = "ModelsKeys"
MODELS = table(
    ROOT, {"models": Key(list_of(MODEL, least=1, most=MAX_MODELS), required=True), "defaults": Key(DEFAULTS)}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model as the user wrote it down, defaults applied; None: left out."""

    model: str
    name: str | None
    place: str
    """Where it stands, `models.yaml:4: models[0]`, for faults that are found later."""
    context: str | None = None
    concurrency: int | None = None
    kv_cache_dtype: str | None = None
    category: str | None = None
    executor: str | None = None
    image: str | None = None
    vllm_version: str | None = None
    vram_claim: str | None = None
    ram_claim: str | None = None
    no_distributed: bool = False
    no_calibration: bool = False
    args: tuple[str, ...] = ()
    share: bool = False
    replicas: int = 1
    priority: int = 1
    hosts: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    gpus: tuple[str, ...] = ()
    anti_affinity: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsFile:
    """The whole file."""

    path: str
    models: tuple[ModelEntry, ...]


def load_models(path: Path | str) -> ModelsFile:
    """Read and validate a file of models. Raises InventoryError naming file, line and key of the first faults."""
    from gpuplan.sources.yaml_keys import read_keys, read_mapping, require_none

    faults = Faults(path=str(path), hint=_HINT)
    root = read_mapping(path, faults, key="models", limit=MAX_BYTES, missing_hint=_MISSING)
    keys = read_keys(root, MODELS, faults)
    require_none(root, _contradictions(keys), faults)
    models = tuple(
        _entry(model, keys["defaults"], _place(root, str(path), index))
        for index, model in enumerate(keys["models"])
    )
    return ModelsFile(path=str(path), models=models)


def models_schema() -> Schema:
    """JSON Schema of a file of models."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpuplan models",
        **json_schema(ROOT, MODELS),
    }


def _place(root: "Node", path: str, index: int) -> str:
    line, written = root.find(("models", index))
    return f"{path}:{line}: {written}"


def _entry(model: Mapping[str, Any], defaults: Mapping[str, Any], place: str) -> ModelEntry:
    def either(key: str, otherwise: Any = None) -> Any:
        for keys in (model, defaults):
            if keys[key] is not None:
                return keys[key]
        return otherwise

    plain = ("context", "concurrency", "kv_cache_dtype", "category", "executor", "image", "vllm_version")
    return ModelEntry(
        model=model["model"],
        name=model["name"],
        place=place,
        **{key: either(key) for key in (*plain, "vram_claim", "ram_claim")},
        **{key: either(key, otherwise=False) for key in ("no_distributed", "no_calibration", "share")},
        args=(*defaults["args"], *model["args"]),
        replicas=either("replicas", 1),
        priority=either("priority", 1),
        hosts=tuple(model["hosts"] or defaults["hosts"]),
        labels=tuple(sorted({**defaults["labels"], **model["labels"]}.items())),
        gpus=tuple(model["gpus"]),
        anti_affinity=tuple(model["anti_affinity"]),
    )


def _contradictions(keys: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    """What is well formed and still cannot be meant."""
    first: dict[str, int] = {}
    for index, model in enumerate(keys["models"]):
        at: Location = ("models", index)
        name = model["name"]
        if name is not None and first.setdefault(name, index) != index:
            yield (*at, "name"), f"{shown(name)!r} is already the name of models[{first[name]}]"
        for number, text in enumerate(model["gpus"]):
            host, colon, rest = text.partition(":")
            if not (colon and host and all(part.strip() for part in rest.split(","))):
                yield (*at, "gpus", number), f"{shown(text)!r} is not HOST:IDX[,IDX]"
        share = model["share"] if model["share"] is not None else keys["defaults"]["share"]
        context, claim = (model[key] or keys["defaults"][key] for key in ("context", "vram_claim"))
        if share and context is None and claim is None:
            where = "share" if model["share"] is not None else "model"
            yield (
                (*at, where),
                "share needs context: how much of a GPU it takes follows from the context to provide for",
            )


def unknown_name(name: str, known: Mapping[str, object]) -> str:
    """The fault of an `anti_affinity` that names no model of the file."""
    near = did_you_mean(name, known)
    return f"anti_affinity: there is no model {shown(name)!r} in this file{near}"
