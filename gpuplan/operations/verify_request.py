"""What `gpuplan verify` starts, from what a user would deploy: the same words but for the weights."""

import os
from dataclasses import replace
from pathlib import Path

from gpuplan.deploying.compile import default_name
from gpuplan.deploying.verify_spec import made_up, trial_name, trial_words
from gpuplan.domain.saved_plan import SavedPlan
from gpuplan.engine.arguments import parse
from gpuplan.operations.deploy_request import DeployRequest, Wanted, named_model, read_wanted

TEXTS = (".json", ".txt", ".model", ".tiktoken", ".jinja", ".py", ".vocab", ".merges")
"""Of configuration, tokenizer and a model's own code."""
MOST_BYTES = 32 * 1024**2
"""Of one file: the largest tokenizers have 30 MB."""
_INDEX = ".index.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", ".tiktoken")


def read_trial(request: DeployRequest) -> Wanted:
    """What would be deployed, with made-up weights and under a name of its own. Raises what `read_wanted` does."""
    wanted = read_wanted(request)
    carried = small_files(wanted.asked.reference or wanted.model.path)
    tokenizer = not carried or any(name.endswith(_TOKENIZERS) for name in carried)
    words = trial_words(wanted.workload.engine, wanted.model.profile.quantization, tokenizer=tokenizer)
    engine = parse(words, version=wanted.version, model_given=True)
    return replace(
        wanted,
        workload=replace(wanted.workload, engine=engine),
        name=trial_name(request.name or default_name(named_model(wanted).name)),
        keep_alive_seconds=None,
        saved=_made_up(wanted.saved, tokenizer=tokenizer),
        trial=True,
        carried=carried,
    )


def _made_up(saved: SavedPlan | None, *, tokenizer: bool) -> SavedPlan | None:
    """A saved plan as it would have been made for a trial: the weights are no change of it."""
    if saved is None:
        return None
    words = saved.candidate.vllm_args
    tried = (*words[:2], *made_up(words[2:], tokenizer=tokenizer))
    return replace(saved, candidate=replace(saved.candidate, vllm_args=tried))


def small_files(reference: str) -> dict[str, bytes]:
    """Configuration and tokenizer of a model that lies on this machine, by name; nothing where it does not.

    A lone configuration becomes `config.json`.
    """
    path = Path(os.path.expanduser(reference))  # noqa: PTH111 - leaves an unknown user as it is
    try:
        if path.is_dir():
            return {entry.name: entry.read_bytes() for entry in sorted(path.iterdir()) if _is_small(entry)}
        if path.is_file():
            return {"config.json": path.read_bytes(), **_beside(path)}
    except OSError:
        return {}
    return {}


def _is_small(path: Path) -> bool:
    named = path.name.endswith(TEXTS) and not path.name.endswith(_INDEX) and not path.name.startswith(".")
    return named and path.is_file() and path.stat().st_size <= MOST_BYTES


def _beside(path: Path) -> dict[str, bytes]:
    """The quantization that `sources.local_files` reads with a lone configuration."""
    other = path.with_name("hf_quant_config.json")
    return {other.name: other.read_bytes()} if path.name == "config.json" and other.is_file() else {}
