"""What differs between a deployment and a trial of it: made-up weights, nobody outside is served, an end of its own.

Everything a start measures is left as the deployment would have it: sizes, batch limits, devices, variables, mounts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuplan.deploying.addresses import LOOPBACK, Place
from gpuplan.deploying.user_words import taken_out
from gpuplan.domain import labels
from gpuplan.domain.deployment import ContainerSpec, DeploymentSpec
from gpuplan.domain.workload import EngineArguments
from gpuplan.errors import UsageError

PREFIX = "verify-"
"""Begins the name of the deployment that a trial is while it lasts."""
LASTS_SECONDS = 7200
"""A trial whose gpuplan is gone ends by itself after so long: nothing else would give its GPUs back."""
_WITH_REAL_WEIGHTS = ("load_format", "model_loader_extra_config", "lora_modules")
"""DummyModelLoader refuses settings of another loader (vLLM 0.33 dummy_loader.py, 0.8 loader.py); adapters are read
after everything was measured, and room for them is made by --enable-lora alone."""
_OWN_LOADER = ("bitsandbytes", "gguf")
"""Quantizations whose loader the engine sets whatever --load-format says (vLLM arg_utils.py, `create_load_config`)."""
_BOUNDED = 'if command -v timeout >/dev/null 2>&1; then exec timeout -s KILL "$0" "$@"; fi; exec "$@"'  # in any vLLM image


def trial_name(base: str) -> str:
    """Of the deployment that a trial of this one is: `verify-qwen3-32b`."""
    return f"{PREFIX}{base}"[:48].rstrip("-._")


def trial_words(
    engine: EngineArguments, quantization: str | None, *, tokenizer: bool = True
) -> tuple[str, ...]:
    """The user's words with made-up weights in the place of those on a disk.

    `quantization`: of the model, as its configuration names it. `tokenizer`: the model's place has one. Raises
    UsageError for a model whose weights the engine reads whatever it is told.
    """
    for given in (engine.quantization, quantization, engine.load_format):
        if given is not None and given.lower().startswith(_OWN_LOADER):
            raise UsageError(
                f"{given}: vLLM reads the weights of such a model even with --load-format dummy",
                hint="gpuplan deploy compares prediction and start with the real weights; gpuplan learn reads its log",
            )
    return made_up(engine.user_args, tokenizer=tokenizer)


def made_up(words: Sequence[str], *, tokenizer: bool) -> tuple[str, ...]:
    """The words with the weights made up."""
    kept, _ = taken_out(words, _WITH_REAL_WEIGHTS)
    skips = tokenizer or "--skip-tokenizer-init" in kept
    return (*kept, "--load-format", "dummy", *(() if skips else ("--skip-tokenizer-init",)))


def trial_of(spec: DeploymentSpec, *, shell: bool) -> DeploymentSpec:
    """The containers of a trial: marked as such, bounded in time where the image has a shell."""
    return replace(spec, containers=tuple(_trial(one, shell=shell) for one in spec.containers))


def unheard(place: Place) -> Place:
    """The host with a server that only the host itself reaches: nobody is to find it and ask it something."""
    return replace(place, bind=LOOPBACK, reach=LOOPBACK, peer=LOOPBACK)


def is_trial(label: Mapping[str, str]) -> bool:
    """Whether a container with these labels is one of a trial."""
    return label.get(labels.TRIAL) == "true"


def _trial(container: ContainerSpec, *, shell: bool) -> ContainerSpec:
    marked = replace(
        container, labels=tuple(sorted({**dict(container.labels), labels.TRIAL: "true"}.items()))
    )
    if not shell:
        return marked
    words = (*container.entrypoint, *container.command)
    return replace(marked, entrypoint=("/bin/sh", "-c", _BOUNDED, str(LASTS_SECONDS)), command=tuple(words))
