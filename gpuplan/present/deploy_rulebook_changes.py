"""A page for each way a fleet can differ from a plan made of it (GP801 to GP808)."""

from gpuplan.present.page import Page
from gpuplan.present.page import page as _page

PAGES: tuple[Page, ...] = (
    _page(
        "GP801",
        "A host of the plan cannot be used now",
        "The hosts were read again before the launch, and one the plan needs gave no answer, or no usable one.",
        "Nothing is started on part of a placement: the other hosts would wait for this one.",
        "Mend the host as the hint says, or plan again without it (--host names the hosts to use).",
        "the fleet is read again before every launch",
    ),
    _page(
        "GP802",
        "A host of the plan is not in the fleet",
        "The plan names a host that the inventory, or the hosts chosen by --host and --label, no longer have.",
        "A plan file says where, but how to reach a host stands in the inventory alone.",
        "Use the inventory the plan was made with, name the host in it again, or make a new plan.",
        "names of hosts in the plan and in the inventory",
    ),
    _page(
        "GP803",
        "A GPU of the plan is gone or another one",
        "The host has no GPU of the UUID that was planned; where there was no UUID, none of that index.",
        "A card was exchanged, has fallen off the bus, or its MIG slices were made anew, so its figures no longer hold.",
        "gpuplan probe shows the cards there are. Plan again when they are as they should be.",
        "UUIDs stay the same when indexes move after a reboot",
    ),
    _page(
        "GP804",
        "A GPU of the plan cannot be used now",
        "The GPU is there, but was left out: a deployment loads on it or fills it, the inventory excludes it, it needs a "
        "reset, was divided into MIG slices, or CUDA cannot start on it.",
        "What is free on it cannot be relied on, or no process can be started there.",
        "Do what the hint says, then deploy the plan again; or plan again, and other GPUs are taken.",
        "the same rules as in planning (S4.5, S4.10)",
    ),
    _page(
        "GP805",
        "Less memory is free than when it was planned",
        "Somebody has taken at least 256 MiB more of the GPU since the plan was made, or the inventory keeps more back.",
        "vLLM refuses to start when its share of the card is not free. As long as the plan still fits this is only told.",
        "Ask whoever is named, stop a deployment that is no longer needed, or plan again.",
        "what may be claimed on a GPU, then and now (S4.4)",
    ),
    _page(
        "GP806",
        "The GPU driver changed",
        "The host runs another version of the GPU driver than when it was planned.",
        "It decides which CUDA, and so which images, can run. The memory it keeps for itself may differ a little.",
        "Nothing, if the checks of the image pass. An older driver may need an older image (--image).",
        "driver versions of the plan and of the probe",
    ),
    _page(
        "GP807",
        "The planned placement does not fit any more",
        "The very GPUs and sizes of the plan were evaluated again on the fleet as it is now, and the verdict is worse.",
        "vLLM would fail at its start, or the asked context would not fit. What stands against it follows.",
        "Undo what changed, or plan again: another placement may fit.",
        "the plan's own request, evaluated again on the plan's own GPUs",
    ),
    _page(
        "GP808",
        "Other arguments than planned",
        "The placement still fits, but an argument or variable of vLLM would not be the one in the plan.",
        "What would be started is not what was shown and agreed to: a shorter context, for example.",
        "Plan again and look at the difference. It also shows after an update of gpuplan, or when the model's files changed.",
        "arguments of the plan against those of the same request now; secrets are not compared",
    ),
)
