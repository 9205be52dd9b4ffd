"""Commands to copy: the engine's own, and the `gpuplan deploy` that asks what a plan was asked. Secrets are masked."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from gpuplan.domain.plan import Candidate
from gpuplan.present.placement_text import quoted

DEFAULTS = {"placement": "spread", "executor": "auto", "replicas": 1, "concurrency": 1}


def serve_command(candidate: Candidate) -> str:
    """`vllm serve …` with its environment in front, on one line."""
    environment = [f"{name}={shlex.quote(value)}" for name, value in candidate.env]
    return " ".join((*environment, "vllm", *quoted(candidate.vllm_args)))


def deploy_command(request: Mapping[str, Any], *, inventory: str | None = None) -> str:
    """`gpuplan deploy …` on one line, quoted for a POSIX shell."""
    return shlex.join(deploy_words(request, inventory=inventory))


def deploy_words(request: Mapping[str, Any], *, inventory: str | None = None) -> tuple[str, ...]:
    """The words that ask for what `Plan.request` was asked for; what is the default is left out.

    The masked value of a secret stays `***`: it has to be written again.
    """
    words = ["gpuplan", "deploy", str(request.get("reference") or request.get("model") or "MODEL")]
    if inventory is not None:
        words += ["--inventory", inventory]
    for option, value in _options(request):
        words += [option] if value is True else [option, str(value)]
    engine = [str(word) for word in request.get("engine_args") or ()]
    return (*words, *(["--", *engine] if engine else []))


def _options(request: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Flags with their values, in the order the help lists them; True: it takes none."""
    for key, option in (
        ("hosts", "--host"),
        ("labels", "--label"),
        ("gpus", "--gpus"),
        ("strategies", "--strategy"),
    ):
        for value in request.get(key) or ():
            yield option, value
    for key, option in (
        ("context", "--context"),
        ("concurrency", "--concurrency"),
        ("replicas", "--replicas"),
        ("placement", "--placement"),
    ):
        value = request.get(key)
        if value is not None and value != DEFAULTS.get(key):
            yield option, value
    if request.get("no_distributed"):
        yield "--no-distributed", True
    if request.get("executor") not in (None, DEFAULTS["executor"]):
        yield "--executor", request["executor"]
    if request.get("allow_overcommit"):
        yield "--allow-overcommit", True
    if request.get("no_calibration"):
        yield "--no-calibration", True
    for key, option in (
        ("category", "--category"),
        ("image", "--image"),
        ("vllm_version", "--vllm-version"),
        ("vram_claim_bytes", "--vram-claim"),
        ("ram_claim_bytes", "--ram-claim"),
    ):
        if request.get(key) is not None:
            yield option, request[key]
