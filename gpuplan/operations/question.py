"""Questions asked one after the other: a model, once read, is kept, and a change to the options reads nothing again.

A model is read for its name and revision. How it is described rests on the few arguments of the engine that bear on it
besides; everything else is planned on the description there is.
"""

import json
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Plan
from gpuplan.domain.repository import Repository
from gpuplan.domain.workload import EngineArguments, Workload
from gpuplan.engine.argument_tokens import flag_of, flatten, grouped
from gpuplan.engine.arguments import written
from gpuplan.engine.flags import spellings
from gpuplan.errors import ModelError
from gpuplan.operations.models import Model, model_of, open_repository, unreadable_model, with_revision
from gpuplan.operations.plan import Asked, ServingOptions, engine_version, plan_model, workload_of

Kept = TypeVar("Kept")
Opener = Callable[[str, EngineArguments], Repository]


class Planner:
    """Plans, with the models it has read. Safe to use from several threads."""

    def __init__(self, open_model: Opener = open_repository) -> None:
        self._open = open_model
        self._repositories: _Kept[Repository] = _Kept()
        self._models: _Kept[Model] = _Kept()

    def plan(self, fleet: Fleet, options: ServingOptions, asked: Asked, *, image: str | None = None) -> Plan:
        """The plan for `asked.reference` on a fleet that was read and narrowed.

        `image`: the one the inventory configures; it decides the vLLM version where no option does. Raises GpuplanError
        subclasses for anything the user can correct; a model that could not be read is tried again the next time.
        """
        version = engine_version(options, image)
        workload = workload_of(options, version)
        model = self.model(asked.reference or "", workload)
        return plan_model(model, fleet, workload, version, asked)

    def model(self, reference: str, workload: Workload) -> Model:
        """The model, read at its first use; with a claim alone it need not be readable. Raises ModelError."""
        claimed = workload.vram_claim_bytes is not None
        key = (claimed, *described_by(reference, workload))
        return self._models.get(
            key, lambda: self._read(reference, workload, claimed=claimed), keep=_wholly_read
        )

    def _read(self, reference: str, workload: Workload, *, claimed: bool) -> Model:
        engine = workload.engine
        try:
            repository = self._repositories.get(
                with_revision(reference, engine), lambda: self._open(reference, engine)
            )
            return model_of(repository, engine, workload.category, opener=self._open)
        except ModelError as error:
            if not claimed:
                raise
            return unreadable_model(reference, workload.category, error)


def _wholly_read(model: Model) -> bool:
    """Whether its draft, if it has one, could be read: one that could not is tried again the next time."""
    draft = model.profile.draft
    return draft is None or not draft.missing


def described_by(reference: str, workload: Workload) -> tuple[Hashable, ...]:
    """All that decides how a model is described: two workloads for which this is equal share one description."""
    engine = workload.engine
    return (
        with_revision(reference, engine),
        json.dumps(dict(engine.hf_overrides or {}), sort_keys=True, default=str),
        engine.dtype,
        engine.quantization,
        engine.runner,
        engine.task,
        json.dumps(dict(engine.speculative_config or {}), sort_keys=True, default=str),
        workload.category,
    )


class _Kept(Generic[Kept]):
    """Values made once per key, by whoever asks first; the others wait for them. A failure is not kept."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Kept] = {}
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(
        self, key: Hashable, make: Callable[[], Kept], *, keep: Callable[[Kept], bool] = lambda _: True
    ) -> Kept:
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            if key in self._values:
                return self._values[key]
            made = make()
            if keep(made):
                self._values[key] = made
            return made


# ---------------------------------------------------------------------- changing a question


def changed(
    reference: str, options: ServingOptions, change: Mapping[str, Any]
) -> tuple[str, ServingOptions] | None:
    """MODEL and options under a remedy's change (`Remedy.change`); None where options cannot say it.

    What a change replaces is taken out of the engine's arguments in whatever spelling it stands there. Another strategy
    means one without the selection, which only the manual strategy honours.
    """
    if not all(name == "model" or name.startswith("--") for name in change):
        return None
    words = options.engine_args
    for name, value in change.items():
        match name:
            case "model":
                reference, words = str(value), without_flags(words, ("--revision",))
            case "--context":
                options = replace(options, context=str(value))
                words = without_flags(words, ("--max-model-len",))
            case "--concurrency":
                options = replace(options, concurrency=int(value))
            case "--replicas":
                options = replace(options, replicas=int(value))
            case "--kv-cache-dtype":
                options = replace(options, kv_cache_dtype=str(value))
                words = without_flags(words, (name,))
            case "--strategy":
                options = replace(options, strategies=(str(value),), gpus=())
            case "--gpus":
                options = replace(options, gpus=tuple(map(str, value)))
            case _:
                destination = name.removeprefix("--").replace("-", "_")
                words = (*without_flags(words, (name,)), *written(destination, value))
    return reference, replace(options, engine_args=words)


def flag_name(group: tuple[str, ...]) -> str:
    """The long name of the flag that a flag with its values begins with: `--tensor-parallel-size` for `-tp 2`."""
    name = flag_of(group)
    spelling = spellings().get(name)
    return name if spelling is None or spelling.negative else spelling.flag.name


def without_flags(words: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Arguments of the engine without these flags (long names) and their values."""
    gone = frozenset(names)
    kept = (group for group in grouped(flatten(words)) if flag_name(group) not in gone)
    return tuple(word for group in kept for word in group)
