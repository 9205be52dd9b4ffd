"""Words about memory that is not free: who holds it, what is loading on it, and what of it can never be pooled."""

from gpuplan.present.holdings import is_named, sentence, way_out
from gpuplan.present.numbers import count, gib, gpu_range, percent, tokens
from gpuplan.present.subjects import engine_says, place, shape
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural


def _busy(subject: Given, figures: Given) -> Words:
    one = f"{subject['host']} GPU {subject['gpu']}"
    others = [gpu for gpu in subject["gpus"] if gpu != subject["gpu"]]
    also = (f"the same check fails on GPU {gpu_range(others)} of this host",) if others else ()
    return told(
        f"{one}: {gib(figures['have_bytes'])} free, the engine wants {gib(figures['need_bytes'])} free at start, "
        f"short by {gib(figures['gap_bytes'])}",
        (
            *_held(figures),
            *also,
            *_not_even(figures),
            *engine_says(figures),
        ),
        _busy_hint(subject, figures),
    )


def _held(figures: Given) -> tuple[str, ...]:
    taken = figures["total_bytes"] - figures["have_bytes"]
    if taken <= 0:
        return ()
    part = f"{gib(taken)} of {gib(figures['total_bytes'])} is held"
    held = figures.get("held", ())
    return (f"{part}: {sentence(held)}",) if is_named(held) else (f"{part} by others or reserved",)


def _not_even(figures: Given) -> tuple[str, ...]:
    """The share that passes the check, where the model does not fit into it."""
    share, lack = figures["passing_utilization"], figures.get("passing_lack")
    if figures["utilization"] is None or share <= 0 or lack is None:
        return ()
    return (f"even {share:.2f}, the largest utilization that passes here, is not enough: {_lack(lack)}",)


def _lack(lack: Given) -> str:
    gpus = int(lack.get("gpus", 1))
    on = f" on each of {gpus} GPUs" if gpus > 1 else ""
    need, have = gib(lack.get("need_bytes")), gib(lack.get("have_bytes"))
    match lack["code"]:
        case None:
            return f"the weights alone need {need}{on}, the budget is {have}"
        case "GP212":
            return f"loading alone needs {need}{on}, the card has {have}"
        case "GP203":
            return f"weights and activation need {need}{on}, the budget is {have}"
        case "GP204":
            return f"one request of {tokens(lack['context'])} needs {need} of KV cache{on}, {have} is left"
        case "GP205":
            requests = plural(lack["concurrency"], "request")
            return f"{requests} of {tokens(lack['context'])} need {need} of KV cache{on}, {have} is left"
        case "GP206":
            return f"room is left for {count(lack['context'])} tokens of context only"
        case "GP207":
            return f"{need} of KV cache{on} are needed, at the safe end of the estimate {have} is left"
        case _:
            return f"each rank needs {need}{on}, the budget is {have}"


def _busy_hint(subject: Given, figures: Given) -> str:
    held = figures.get("held", ())
    missing = gib(figures["gap_bytes"])
    one = f"{subject['host']} GPU {subject['gpu']}"
    out = way_out(held, one, missing)
    if figures["utilization"] is not None and figures.get("passing_fits"):
        return f"{out}, or pass -- --gpu-memory-utilization {figures['passing_utilization']:.2f}"
    return f"{out}, or use another GPU"


def _loading(subject: Given, figures: Given) -> Words:
    names = " and ".join(figures["deployments"])
    return (
        f"{subject['host']} GPU {gpu_range(subject['gpus'])}: left out while deployment {names} is loading",
        ("what it will take shows on the GPU only when it serves",),
        f"plan again when it serves (gpuplan status {figures['deployments'][0]})",
    )


def _full(subject: Given, figures: Given) -> Words:
    names = figures["deployments"]
    return told(
        f"{subject['host']} GPU {gpu_range(subject['gpus'])}: left out, {plural(len(names), 'deployment')} on it already "
        f"({', '.join(names)})",
        ("a GPU takes three deployments, and one where what is free on it cannot be trusted",),
        f"use another GPU, or stop one that is no longer needed (gpuplan stop {names[0]})",
    )


def _slices(subject: Given, figures: Given) -> Words:
    where = (
        f"{subject['host']} GPU {gpu_range(subject['gpus'])}"
        if isinstance(subject.get("gpus"), (list, tuple))
        else str(subject.get("host") or ", ".join(subject.get("hosts", ())) or "this hardware")
    )
    return (
        f"{where}: {figures['ranks']} ranks cannot work together on MIG slices ({figures['part']})",
        (
            "a CUDA process sees one MIG slice and cannot reach another, on the same card or elsewhere",
            *engine_says(figures),
        ),
        "run one whole model per slice (--replicas N), use a larger slice, or take whole cards",
    )


def _unified(subject: Given, figures: Given) -> Words:
    share, most = figures["utilization"], figures["most"]
    hosts = ", ".join(subject["hosts"])
    return (
        f"{hosts}: the GPU shares its memory with the host, utilization {percent(share)} is no upper bound there",
        (
            "what the engine takes beyond its budget is taken from the operating system, up to an unreachable host",
            "the start-up check counts what the kernel calls available, which caches and other programs lower",
        ),
        f"pass -- --gpu-memory-utilization {most:.2f} or less, and keep reserve: {{ram: 12GiB}} or more in the inventory"
        if share > most
        else "keep reserve: {ram: 12GiB} or more in the inventory",
    )


def _not_launchable(subject: Given, figures: Given) -> Words:
    codes = figures["codes"]
    return told(
        f"{subject['host']}: the model fits, but cannot be started there as the host is ({', '.join(codes)})",
        ("the plan looks at memory; no container would get these GPUs now",),
        f"see {codes[0]} below or gpuplan explain {codes[0]}, then plan again",
    )


def _too_big_to_load(subject: Given, figures: Given) -> Words:
    peak = figures.get("loading_peak_bytes") or 0
    while_loading = f", and {gib(peak)} more while they are converted" if peak else ""
    return told(
        f"{place(subject)}: {shape(figures)} needs {gib(figures['need_bytes'])} on {figures['device']} to load the weights, "
        f"the card has {gib(figures['have_bytes'])}, short by {gib(figures['gap_bytes'])}",
        (
            f"weights take {gib(figures['weights_bytes'])} on rank {figures['rank']}{while_loading}",
            *engine_says(figures),
        ),
        "use more GPUs, larger cards"
        + (", or a checkpoint that is quantized already" if peak else " or a quantized variant"),
    )


WORDS: dict[str, Worder] = {
    "GP201": _busy,
    "GP211": _unified,
    "GP212": _too_big_to_load,
    "GP308": _slices,
    "GP404": _loading,
    "GP405": _full,
    "GP406": _not_launchable,
}
