"""Remedies in words: what to change, and what it costs."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gpuplan.domain.plan import Remedy
from gpuplan.engine.arguments import written
from gpuplan.present.numbers import count, gib, gpu_range, listed, percent, tokens
from gpuplan.units import plural

Words = tuple[str, str]
OURS = ("--context", "--concurrency", "--kv-cache-dtype", "--replicas", "--strategy", "--gpus")


class _Told(NamedTuple):
    """Why the change helps, and what it costs."""

    reason: str
    cost: str
    lead: str | None = None
    """What to do, where it is no option: another model, a command, something to wait for."""


def word_remedy(remedy: Remedy) -> Words:
    """(headline, cost) of a remedy."""
    if remedy.kind == "pair":
        return _pair(remedy)
    told = _WORDS[remedy.kind](remedy.change, remedy.figures)
    lead = option(remedy.change) if told.lead is None else told.lead
    return f"{lead}: {told.reason}" if told.reason else lead, told.cost


def option(change: Mapping[str, Any]) -> str:
    """The change as it is typed: our options first, the engine's behind `--`."""
    ours = [_ours(name, value) for name, value in change.items() if name in OURS]
    engine = [
        shlex.join(written(name.removeprefix("--").replace("-", "_"), value))
        for name, value in change.items()
        if name not in OURS and name.startswith("--")
    ]
    return " ".join([*ours, *(["--", *engine] if engine else [])])


def _ours(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(f"{name} {shlex.quote(str(item))}" for item in value)
    return f"{name} {shlex.quote(str(value))}"


def _pair(remedy: Remedy) -> Words:
    """Both changes in one line as they are typed, then what each of them gives and costs."""
    parts = [(part, _WORDS[part.kind](part.change, part.figures)) for part in remedy.figures["parts"]]
    parts.sort(key=lambda part: part[1].lead is None)
    leads = [told.lead for _, told in parts if told.lead is not None]
    typed = option(
        {name: value for part, told in parts if told.lead is None for name, value in part.change.items()}
    )
    reasons = [told.reason for _, told in parts if told.reason]
    headline = " and ".join([*leads, *([typed] if typed else [])])
    return f"{headline}: {', and '.join(reasons)}", "; ".join(told.cost for _, told in parts)


def _context(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        "the longest context that fits here",
        f"{tokens(figures['context'])} instead of {tokens(figures['asked'])}",
    )


def _concurrency(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        "as many requests as the KV cache holds",
        f"{plural(figures['concurrency'], 'request')} at once instead of {count(figures['asked'])}",
    )


def _replicas(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        "as many copies as there is room for",
        f"{plural(figures['replicas'], 'replica')} instead of {count(figures['asked'])}",
    )


def _sequences(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        f"a smaller sampler peak leaves {_more(figures)} for the KV cache",
        f"at most {plural(figures['sequences'], 'request')} run at once instead of {count(figures['asked'])}",
    )


def _batched(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        f"a smaller batch leaves {_more(figures)} for the KV cache",
        "long prompts are read in more, smaller steps",
    )


def _more(figures: Mapping[str, Any]) -> str:
    """`1.20 GiB more`; of a pair nobody can tell what each gives."""
    gained = figures.get("gained_bytes")
    return f"{gib(gained)} more" if gained else "more"


def _graphs(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        f"CUDA graphs for batches of up to {count(figures['graphs'])} only",
        f"larger batches (up to {count(figures['asked'])} so far) run without a graph: each step starts its kernels one by one",
    )


def _eager(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told("no memory for CUDA graphs", _slower(figures, "every step starts its kernels one by one"))


def _slower(figures: Mapping[str, Any], otherwise: str) -> str:
    """`slower decode: about 31 instead of 45 tokens/s for each user`, where both are known."""
    after, before = figures.get("decode"), figures.get("decode_before")
    if after is None or before is None or before <= 0:
        return f"slower decode: {otherwise}"
    return f"slower decode: about {_rate(after)} instead of {_rate(before)} tokens/s for each user"


def _rate(number: float) -> str:
    return f"{number:.1f}" if number < 10 else count(number)


def _kv_dtype(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        "the KV cache takes half the bytes",
        "a small loss of accuracy; needs a GPU and kernel that support fp8",
    )


def _dtype(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        "run in float16 instead of bfloat16",
        "a smaller range of numbers; most models bear it",
    )


def _utilization(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    more = figures["share"] > figures["asked"]
    shares = f"{percent(figures['share'])} instead of {percent(figures['asked'])}"
    return _Told(
        f"{'more' if more else 'less'} of each GPU for the engine ({shares})",
        "less room for other processes" if more else "a smaller KV cache",
    )


def _experts(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        f"each rank holds whole ones of the {count(figures['experts'])} experts instead of a slice of every one",
        "ranks whose experts are asked for more often hold the others up",
    )


def _lora_slots(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        "fewer adapters are kept on the GPU",
        f"at most {plural(figures['slots'], 'adapter')} in one batch instead of {count(figures['asked'])}",
    )


def _lora_rank(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        "smaller slots for adapters",
        f"adapters of a rank above {count(figures['rank'])} cannot be loaded (up to {count(figures['asked'])} so far)",
    )


def _items(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    names = [f"{name}s" if name != "audio" else name for name in figures["modalities"]]
    return _Told(
        f"no memory for the tower of {' and '.join(names)}", f"requests with {' or '.join(names)} are refused"
    )


def _offload(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        f"{count(figures['gib'])} GiB of weights of each GPU stay in host memory",
        _slower(figures, "every step reads them over PCIe"),
    )


def _shape(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    gpus, asked = figures["gpus"], figures["asked"]
    cost = (
        "no more GPUs than asked for" if gpus <= asked else f"{plural(gpus, 'GPU')} instead of {count(asked)}"
    )
    layers = figures.get("partition")
    uneven = f", {'+'.join(map(str, layers))} layers" if layers else ""
    lead = f"{option(change)} without --gpus" if figures.get("selected") else None
    return _Told(f"{figures['shape']}{uneven} on {figures['where']}", cost, lead)


def _other_gpus(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    lead = f"{option(change)} instead"
    return _Told(f"{figures['shape']} on {figures['where']}", "other GPUs than the selected ones", lead)


def _other_hosts(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        f"{figures['shape']} on {figures['where']}",
        "ranks on different hosts talk over the network",
        lead=f"without {change['without']}",
    )


def _sibling(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        f"the same model with {figures['quantization']} weights",
        f"{gib(figures['weights_bytes'])} of weights instead of {gib(figures['asked_bytes'])}; some loss of accuracy",
        lead=str(change["model"]),
    )


def _stop(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        f"what it holds on {listed(figures['places'])} comes back; then plan again",
        _stopped(figures.get("requests")),
        lead=f"gpuplan stop {shlex.quote(str(figures['deployment']))}",
    )


def _stopped(requests: int | None) -> str:
    if requests:
        return f"{plural(requests, 'request')} in flight there would be lost"
    return "it has no request in flight now" if requests == 0 else "it serves nobody any more"


def _process(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    place = f"{figures['host']}:{gpu_range(figures['gpus'])}"
    owner = f" of user {figures['user']}" if figures["user"] else ""
    what = " in container ".join(str(part) for part in (figures["process"], figures["container"]) if part)
    named = f" ({what})" if what else ""
    ask = f"ask {figures['user']}" if figures["user"] else "ask whose it is"
    return _Told(
        f"{gib(figures['bytes'])} come back there",
        f"it is not gpuplan's and is never touched: {ask}",
        lead=f"if pid {figures['pid']}{owner} on {place} ended{named}",
    )


def _more_gpus(change: Mapping[str, Any], figures: Mapping[str, Any]) -> _Told:
    return _Told(
        "",
        f"{plural(figures['more'], 'GPU')} more than there is",
        lead=f"{plural(figures['gpus'], 'GPU')} of kind {figures['device']} on one host would do ({figures['shape']})",
    )


_WORDS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], _Told]] = {
    "context": _context,
    "concurrency": _concurrency,
    "replicas": _replicas,
    "max_num_seqs": _sequences,
    "max_num_batched_tokens": _batched,
    "graphs": _graphs,
    "enforce_eager": _eager,
    "kv_cache_dtype": _kv_dtype,
    "dtype": _dtype,
    "gpu_memory_utilization": _utilization,
    "expert_parallel": _experts,
    "max_loras": _lora_slots,
    "max_lora_rank": _lora_rank,
    "mm_limit": _items,
    "cpu_offload_gb": _offload,
    "shape": _shape,
    "gpus": _other_gpus,
    "other_hosts": _other_hosts,
    "sibling": _sibling,
    "stop": _stop,
    "process": _process,
    "more_gpus": _more_gpus,
}
KINDS = (*_WORDS, "pair")
