"""The built-in catalogue of models: configurations that are read without the network, one file per model.

A line of `models.json` is a fact sheet; the configuration itself lies in `configs/` and is opened only for the model
that is asked for. Both are written by `tests/tools/make_model_catalogue.py`.
"""

import json
import pkgutil
from dataclasses import dataclass
from functools import cache
from typing import Any

from gpuplan.domain.repository import Evidence, Origin, Repository
from gpuplan.errors import ModelError
from gpuplan.sources.catalogue.names import listed, near_misses


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueModel:
    """One model of the catalogue."""

    name: str
    """Its id on the hub, `org/name`."""
    family: str
    base: str | None
    """The release of the catalogue that this one is a quantized variant of; None for a release of its own."""
    quantization: str | None
    """vLLM's name of the method, None when unquantized."""
    parameters: int | None
    """Weights of the whole model, its towers included, drafts left out; None where its layout is not known."""
    weights_bytes: int
    """On a single GPU, as the engine creates them."""
    longest_context: int
    """Tokens; 0 when the configuration does not say."""
    architecture: str
    source: str
    """Where the configuration was published, or what it was derived from."""


@cache
def load() -> tuple[CatalogueModel, ...]:
    """Every model of the catalogue, by family and size; read once."""
    return tuple(CatalogueModel(**row) for row in _read("models.json")["models"])


def find(reference: str) -> CatalogueModel | None:
    """The model of that hub id, or of that name without its organization; case does not matter.

    Raises ModelError where several organizations publish a model of that name.
    """
    wanted = reference.casefold()
    if "/" in wanted:
        return _by_id().get(wanted)
    matches = _by_short_name().get(wanted, ())
    if len(matches) > 1:
        choices = [model.name for model in matches]
        raise ModelError(
            f"the name {reference!r} fits several models of the catalogue: {listed(choices)}",
            hint=f"name one of them, for example {choices[0]}",
        )
    return matches[0] if matches else None


def lookup(reference: str) -> Repository | None:
    """The files of a catalogue model; None when there is no such model. Raises ModelError as `find` does."""
    model = find(reference)
    if model is None:
        return None
    files = _read(f"configs/{file_name(model.name)}")
    return Repository(
        name=model.name,
        origin=Origin.CATALOGUE,
        location=model.name,
        config=files["config"],
        quantization=files.get("hf_quant_config"),
        evidence=Evidence.CONFIG,
    )


def near(reference: str) -> tuple[str, ...]:
    """Catalogue ids that look like a name that was not found, best first."""
    wanted = reference.partition("@")[0]
    if "/" in wanted:
        return near_misses(wanted, (model.name for model in load()))
    full = {model.name.partition("/")[2]: model.name for model in load()}
    return tuple(full[short] for short in near_misses(wanted, full))


def siblings(name: str) -> tuple[str, ...]:
    """Quantized variants of a model, those that keep most bits first."""
    wanted = name.casefold()
    found = [model for model in load() if model.base is not None and model.base.casefold() == wanted]
    found.sort(key=lambda model: (-model.weights_bytes, model.name))
    return tuple(model.name for model in found)


def file_name(name: str) -> str:
    """The file under `configs/` that holds the model of that hub id."""
    return name.replace("/", "__") + ".json"


@cache
def _by_id() -> dict[str, CatalogueModel]:
    return {model.name.casefold(): model for model in load()}


@cache
def _by_short_name() -> dict[str, tuple[CatalogueModel, ...]]:
    named: dict[str, tuple[CatalogueModel, ...]] = {}
    for model in load():
        short = model.name.rpartition("/")[2].casefold()
        named[short] = (*named.get(short, ()), model)
    return named


def _read(path: str) -> Any:
    content = pkgutil.get_data(__package__, path)  # importlib.resources takes 30 ms to import
    if content is None:
        raise FileNotFoundError(f"{path} is missing from the installed package")
    return json.loads(content)
