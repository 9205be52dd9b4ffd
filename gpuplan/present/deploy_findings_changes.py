"""Words about what changed between a plan and the fleet (GP801 to GP808)."""

from gpuplan.present.holdings import is_named, sentence, way_out
from gpuplan.present.numbers import gib
from gpuplan.present.unreached import way_back
from gpuplan.present.words import Given, Worder, Words, told

AGAIN = "plan again: gpuplan plan MODEL"
_REASONS = {
    "excluded": (
        "the inventory excludes it now (exclude_gpus)",
        "take it out of exclude_gpus, or plan again",
    ),
    "memory": ("its memory is unknown now", "gpuplan probe shows what its driver says"),
    "lost": ("it does not answer or needs a reset", "gpuplan explain GP608"),
    "divided": (
        "it was divided into MIG slices",
        "plan again: its slices are GPUs of their own; or switch MIG off",
    ),
}


def _place(subject: Given) -> str:
    return f"{subject['host']}:{subject['gpu']}"


def _unreachable(subject: Given, figures: Given) -> Words:
    wrong, fix = way_back(str(figures.get("stage") or ""), figures.get("address"))
    detail = figures.get("detail")
    return told(
        f"{subject['host']}, a host of the plan, cannot be used now: {wrong}",
        (str(detail),) if detail else (),
        f"{fix}; or {AGAIN}",
    )


def _no_host(subject: Given, _figures: Given) -> Words:
    return told(
        f"{subject['host']}, a host of the plan, is not in the fleet now",
        ("the inventory does not name it, or --host or --label leave it out",),
        f"name {subject['host']} in the inventory, or {AGAIN}",
    )


def _replaced(subject: Given, figures: Given) -> Words:
    then, now = figures.get("then"), figures.get("now")
    because = []
    if then:
        because.append(f"planned: {then}")
    if now:
        because.append(f"at index {subject['gpu']} now: {now}")
    headline = "is another GPU than planned" if now else "is gone"
    return told(f"{_place(subject)} {headline}", tuple(because), AGAIN)


def _barred(subject: Given, figures: Given) -> Words:
    reason = figures.get("reason")
    names = [str(name) for name in figures.get("deployments") or ()]
    if names:
        doing = "is loading" if reason == "loading" else "fill it" if len(names) > 1 else "fills it"
        because = f"{' and '.join(names)} {doing}"
        hint = f"wait for it or stop it (gpuplan status {names[0]}), or {AGAIN}"
    elif reason == "barred":
        because, hint = "CUDA cannot start on it", f"gpuplan explain {figures.get('state')}"
    else:
        because, hint = _REASONS.get(str(reason), ("it was left out", AGAIN))
    return told(f"{_place(subject)} cannot be used now", (because,), hint)


def _taken(subject: Given, figures: Given) -> Words:
    then, now, claim = figures["then_bytes"], figures["now_bytes"], figures["claim_bytes"]
    held = figures.get("held", ())
    because = [f"the plan takes {gib(claim)} of it"]
    if is_named(held):
        because.append(f"since then: {sentence(held)}")
    hint = None
    if now < claim:
        hint = f"{way_out(held, _place(subject), gib(claim - now))}; or {AGAIN}"
    return told(
        f"{_place(subject)} has {gib(now)} to give, {gib(then - now)} less than when it was planned",
        tuple(because),
        hint,
    )


def _driver(subject: Given, figures: Given) -> Words:
    return told(
        f"{subject['host']}: the GPU driver is {figures['now']}, was {figures['then']} when it was planned",
        ("an image needs a driver that is new enough for its CUDA",),
        None,
    )


def _no_fit(subject: Given, figures: Given) -> Words:
    hosts = ", ".join(str(host) for host in subject.get("hosts") or ())
    now = "fits only by overcommit now" if figures["now"] == "overcommit" else "does not fit any more"
    error = figures.get("error")
    return told(
        f"the planned placement on {hosts} {now}",
        (f"vLLM would print: {error}",) if error else (),
        AGAIN,
    )


def _different(subject: Given, figures: Given) -> Words:
    if "variable" in subject:
        name = f"the variable {subject['variable']}"
    else:
        first = str(subject.get("argument"))
        name = "the model" if first == "serve" else first
    then, now = figures.get("then"), figures.get("now")
    because = (
        f"planned: {then if then is not None else 'not given'}",
        f"now: {now if now is not None else 'not given'}",
    )
    return told(f"{name} would not be what was planned", because, AGAIN)


WORDS: dict[str, Worder] = {
    "GP801": _unreachable,
    "GP802": _no_host,
    "GP803": _replaced,
    "GP804": _barred,
    "GP805": _taken,
    "GP806": _driver,
    "GP807": _no_fit,
    "GP808": _different,
}
