"""What an engine's own classes allocate on each rank, asked of an image that has vLLM: the program, requests, answers.

The program needs Python and vLLM, no GPU, no weights and no network: `python3 -c PROGRAM REQUEST`, or requests on stdin, one a
line. Every request is answered in processes of its own. What fails is told as an error; nothing is guessed.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuplan.deploying.parameter_pretence import PRETENCE
from gpuplan.deploying.parameter_program import COUNTING

PROGRAM = f"{PRETENCE.strip()}\n\n\n{COUNTING.strip()}\n"
"""For `python3 -c`; 25 KB."""
SECONDS = 300.0
"""Importing vLLM from a slow disk takes a minute, a rank of a large model some seconds."""
MODEL = "{model}"
"""Stands in a request's words for the directory of a model that is given by its files."""

_LINE = re.compile(r"^gpuplan-parameters (\{.*\})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParameters:
    """One rank of the engine."""

    stage: int
    """Pipeline stage."""
    tensor_rank: int
    parameters: int
    """Bytes of all parameters, shared ones once, before kernels repack them."""
    buffers: int
    """Bytes of registered buffers."""
    built: str
    """vLLM's model class."""
    draft_parameters: int | None = None
    """Bytes of the draft model, with what it will share with the main one; None: no draft on this rank."""
    draft_buffers: int | None = None
    quantization: str | None = None
    """What vLLM made of the checkpoint's."""
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParameters:
    """What the engine answered: ranks, or why there are none."""

    version: str | None
    """Of vLLM; None where it could not be imported."""
    ranks: tuple[RankParameters, ...] = ()
    error: str | None = None
    pretended: tuple[str, ...] = ()
    """Packages of kernels that the image lacks, or that cannot be imported without a driver."""


def parameter_request(
    words: Sequence[str],
    *,
    gpu: str,
    gpu_bytes: int,
    capability: tuple[int, int],
    count: int,
    models: Mapping[str, Mapping[str, Any]] | None = None,
    tensor_ranks: Sequence[int] = (0,),
    integrated: bool = False,
) -> str:
    """One request as a line of JSON.

    `words` are those after `vllm serve`, the model first; each key of `models` that stands in them (`{model}`) becomes the
    directory of its files, by name (`config.json`, `hf_quant_config.json`). The cards need not exist: `gpu` is their
    name as CUDA tells it, `gpu_bytes` their memory, `count` their number.
    """
    card = {
        "name": gpu,
        "total_bytes": gpu_bytes,
        "capability": list(capability),
        "count": count,
        "integrated": integrated,
    }
    request = {"words": list(words), "gpu": card, "tensor_ranks": list(tensor_ranks), "models": models or {}}
    return json.dumps(request, separators=(",", ":"))


def read_parameters(output: str) -> EngineParameters:
    """What the program printed for one request; an error where it printed no whole answer."""
    answers: list[dict[str, Any]] = []
    for line in _LINE.findall(output):
        try:
            answers.append(json.loads(line))
        except ValueError:
            return EngineParameters(version=None, error="the image's answer is no JSON")
    version = next((str(told["vllm"]) for told in answers if "vllm" in told), None)
    failed = next((told for told in answers if "error" in told), None)
    if failed is not None:
        return EngineParameters(version=version, error=_error(failed))
    told = next((told["ranks"] for told in answers if "ranks" in told), None)
    if told is None:
        return EngineParameters(version=version, error="the image gave no answer")
    try:
        ranks = tuple(_rank(rank) for rank in told)
        pretended = sorted({str(name) for rank in told for name in rank.get("pretended", ())})
    except (KeyError, TypeError, ValueError, AttributeError):
        return EngineParameters(version=version, error="the image's answer is not as expected")
    return EngineParameters(version=version, ranks=ranks, pretended=tuple(pretended))


def _error(told: dict[str, Any]) -> str:
    where = told.get("at") or []
    last = f" ({where[-1]})" if isinstance(where, list) and where else ""
    return f"{told['error']}{last}"


def _rank(told: dict[str, Any]) -> RankParameters:
    model, draft = told["model"], told.get("draft")
    return RankParameters(
        stage=int(told["stage"]),
        tensor_rank=int(told["tensor_rank"]),
        parameters=int(model["parameters"]),
        buffers=int(model["buffers"]),
        built=str(model["class"]),
        draft_parameters=None if draft is None else int(draft["parameters"]),
        draft_buffers=None if draft is None else int(draft["buffers"]),
        quantization=told.get("quantization"),
        dtype=str(told.get("dtype", "")),
    )
