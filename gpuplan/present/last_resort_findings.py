"""Words and pages about what is left where nothing fits whole: weights in host memory, and deployments to stop."""

from gpuplan.domain.plan import StrategyName
from gpuplan.present.eviction_text import keep_alive_words, load_words
from gpuplan.present.numbers import gib, listed
from gpuplan.present.page import page as _page
from gpuplan.present.subjects import engine_says, place, shape
from gpuplan.present.throughput_words import rate, seconds
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural

EVICT = f"--strategy {StrategyName.EVICT.value}"


def _cost(subject: Given, figures: Given) -> Words:
    gib_each = f"{figures['offload_gib']} GiB"
    on = "the GPU" if figures["gpus"] == 1 else f"each of {figures['gpus']} GPUs"
    headline = f"{gib_each} of weights of {on} stay in host memory"
    because = [
        f"{gib(figures['ram_bytes'])} of RAM are pinned on {subject['host']}: PyTorch rounds each tensor up to a power of two"
    ]
    if "read_bytes" in figures:
        headline += (
            f": every step moves {gib(figures['read_bytes'])} over {figures['bus']} at "
            f"{figures['bytes_per_second'] / 1e9:.0f} GB/s: about {rate(figures['tokens_per_second'])} tokens/s a user"
        )
        because.insert(
            0,
            f"that alone takes {seconds(figures['step_seconds'])} a token; the same cards with all weights on them would give "
            f"about {rate(figures['whole_tokens_per_second'])} tokens/s",
        )
    else:
        headline += ", which every step reads over the bus"
    return told(
        headline,
        tuple(because),
        "a quantized variant, a smaller --context or more GPUs would do without",
    )


def _little_ram(subject: Given, figures: Given) -> Words:
    where, need = place(subject), gib(figures["need_bytes"])
    each = "the GPU" if figures["gpus"] == 1 else f"each of {figures['gpus']} GPUs"
    moved = f"{figures['offload_gib']} GiB of weights of {each}"
    if figures["have_bytes"] is None:
        return told(
            f"{where}: {moved} would have to stay in host memory, {need} of RAM; how much the host has is not known",
            ("pinned memory that is not there ends the process, so unknown RAM counts as none",),
            "plan on the probed host, or give memory.available_bytes in the snapshot",
        )
    return told(
        f"{where}: {moved} would have to stay in host memory: {need} of RAM, {gib(figures['have_bytes'])} available, "
        f"short by {gib(figures['gap_bytes'])}",
        ("RAM that the inventory keeps back (reserve: {ram: …}) does not count as available",),
        "free RAM on the host, use one with more, or a quantized variant",
    )


def _even_all(subject: Given, figures: Given) -> Words:
    return told(
        f"{place(subject)}: even with all {figures['offload_gib']} GiB of its layers in host memory {shape(figures)} needs "
        f"{gib(figures['need_bytes'])} on {figures['device']}, there is {gib(figures['have_bytes'])}, "
        f"short by {gib(figures['gap_bytes'])}",
        (
            "embeddings, activation and the KV cache stay on the GPU",
            *engine_says(figures),
        ),
        "a shorter --context, fewer requests at once or larger cards",
    )


def _no_use(subject: Given, figures: Given) -> Words:
    host = subject["host"]
    if figures["why"] == "busy":
        return told(
            f"{host} GPU {subject['gpu']}: {gib(figures['have_bytes'])} of {gib(figures['total_bytes'])} free, less than the "
            "engine takes at start",
            ("its share of the card must be free whatever stays in host memory",),
            f"free the GPU ({EVICT} says how, where deployments of gpuplan's hold it), or lower -- --gpu-memory-utilization",
        )
    if figures["why"] == "unified":
        return told(
            f"{host}: {figures['device']} shares its memory with the host, so moving weights there frees nothing",
            (),
            None,
        )
    return told(
        f"{host}: vLLM reads weights in host memory on NVIDIA and AMD GPUs, not on {figures['backend']}",
        (),
        "use more GPUs, larger cards or a quantized variant",
    )


def _stopped_first(subject: Given, figures: Given) -> Words:
    names = [str(name) for name in subject["deployments"]]
    because = tuple(
        f"{one['deployment']}: {load_words(one['requests'])}, {keep_alive_words(one['keep_alive_seconds'])}; "
        f"{gib(one['bytes'])} come back on {listed(one['gpus'], most=4)}"
        for one in figures["evicts"]
    )
    return told(
        f"{listed(names, most=4)} must be stopped first",
        because,
        f"gpuplan deploy … {EVICT} asks before it stops anything",
    )


def _others(subject: Given, figures: Given) -> Words:
    who = (
        f"{figures['name'] or 'a process'} (pid {figures['pid']})" if figures["pid"] else str(figures["name"])
    )
    if figures["user"]:
        who += f" of {figures['user']}"
    if figures["container"]:
        who += f" in container {figures['container']}"
    more = figures["more"]
    return told(
        f"{subject['host']} GPU {subject['gpu']}: {gib(figures['bytes'])} are held by {who}, which is not gpuplan's",
        (f"… and {plural(more, 'more process')} of others (gpuplan probe)",) if more else (),
        "it is never stopped from here: ask its owner, or use another GPU",
    )


def _pinned(subject: Given, figures: Given) -> Words:
    del figures
    return told(
        f"{subject['deployment']} on {listed(subject['hosts'])} is pinned: its keep-alive is negative",
        ("a pinned deployment never makes room",),
        f"gpuplan stop {subject['deployment']} stops it all the same",
    )


def _starting(subject: Given, figures: Given) -> Words:
    del figures
    return told(
        f"{subject['deployment']} on {listed(subject['hosts'])} is still starting: it is not stopped for another",
        ("what it takes, and how busy it is, shows only when it serves",),
        f"plan again when it serves (gpuplan status {subject['deployment']})",
    )


def _not_even(subject: Given, figures: Given) -> Words:
    names = listed([str(name) for name in subject["deployments"]], most=4)
    gap = figures.get("gap_bytes")
    lacks = (
        f": {place(subject)} is short by {gib(gap)} then [{figures['lack']}]"
        if gap and figures["lack"]
        else ""
    )
    return told(
        f"not even with {names} stopped does it fit{lacks}",
        engine_says(figures),
        "nothing is gained by stopping them: use more GPUs, larger cards or a quantized variant",
    )


WORDS: dict[str, Worder] = {
    "GP220": _cost,
    "GP221": _little_ram,
    "GP222": _even_all,
    "GP223": _no_use,
    "GP230": _stopped_first,
    "GP231": _others,
    "GP232": _pinned,
    "GP233": _starting,
    "GP234": _not_even,
}
PAGES = (
    _page(
        "GP220",
        "Weights stay in host memory",
        "Nothing holds the model whole, so some layers stay in the RAM of the host: --cpu-offload-gb, in whole GiB for each GPU, "
        "the fewest that do.",
        "Every step reads them over the card's bus, which is tens of times slower than its own memory. The figure counts "
        "63 % of the bus, and no more than 200 GB/s of host memory for all GPUs of a host; of routed experts only those that "
        "some token chooses. RAM is counted as PyTorch pins it: each tensor rounded up to a power of two.",
        "Take it for trying a model out. For serving, a quantized variant, a shorter context or more GPUs are faster.",
        "S4.3; vLLM model_executor/offloader/uva.py; vLLM issue 56410",
    ),
    _page(
        "GP221",
        "Too little RAM for what the GPUs do not hold",
        "The weights that the GPUs of this host cannot hold need more RAM than it has available, or nobody knows "
        "how much it has.",
        "They are pinned: the kernel cannot swap them out, and kills the process when they do not go in.",
        "Free RAM, use a host with more, or plan on a probed host.",
        "S4.3, S0.5",
    ),
    _page(
        "GP222",
        "Too large even with all layers in host memory",
        "What cannot leave the GPU is more than it gives: embeddings, output head, activation, the KV cache.",
        "Only the parameters of decoder layers can be moved.",
        "Ask for a shorter context or fewer requests at once, or use larger cards.",
        "S4.3; vLLM model_executor/offloader/uva.py",
    ),
    _page(
        "GP223",
        "Offload does not help on this host",
        "The GPUs are not free, share their memory with the host, or run an engine that cannot read host memory in place.",
        "The engine's share of the card must be free at start whatever stays outside.",
        "Free the GPU or use another host.",
        "S4.3; vLLM utils/torch_utils.py, get_accelerator_view_from_cpu_tensor",
    ),
    _page(
        "GP230",
        "Deployments to stop first",
        "The model fits once these deployments of gpuplan's are stopped, and nothing else has to be.",
        "Named are the fewest that do: first those without requests in flight, then those that did not tell, then the busy; "
        "among equals the shortest keep-alive, those without one last. A negative keep-alive pins a deployment; it is never "
        "named, nor is one that still starts, nor a process of others.",
        "gpuplan deploy MODEL --strategy evict asks, stops them, waits until the memory is back and then starts.",
        "S4.6",
    ),
    _page(
        "GP231",
        "Somebody else's process is in the way",
        "A process that gpuplan did not start holds memory that the model needs.",
        "It is named so that you can ask its owner. gpuplan never stops what it did not start.",
        "Ask its owner, wait, or use another GPU.",
        "S4.6",
    ),
    _page(
        "GP232",
        "Pinned, never stopped for another",
        "The deployment was made with a negative keep-alive.",
        "Whoever deployed it wants it to stay: no sweep and no other model stops it.",
        "Stop it yourself if it is no longer needed: gpuplan stop NAME.",
        "S4.6, S4.8",
    ),
    _page(
        "GP233",
        "Still starting, not stopped for another",
        "The deployment loads its model, or was made and not started yet.",
        "Nobody can say yet what it takes, and it has not served a single request.",
        "Plan again when it serves.",
        "S4.5, S4.6",
    ),
    _page(
        "GP234",
        "Stopping deployments does not make enough room",
        "With every deployment of gpuplan's gone that may be stopped, the model still does not fit.",
        "Nothing is gained by stopping them.",
        "See what is short, who else holds memory, or use other GPUs.",
        "S4.6",
    ),
)
