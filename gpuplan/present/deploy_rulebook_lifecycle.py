"""A page for each state of what runs, of stopping and restarting it (GP850 to GP859)."""

from gpuplan.present.page import Page
from gpuplan.present.page import page as _page

PAGES: tuple[Page, ...] = (
    _page(
        "GP850",
        "A run waits for the lock of a host",
        "Another gpuplan deploys or stops something on this host, from here or from another machine, and this run waits.",
        "GPUs, ports and names are chosen before they are taken: two runs at once would choose the same.",
        "Nothing, as a rule: the lock ends with the run that holds it, also when it is killed or cut off (within a minute). "
        "gpuplan unlock shows who holds it, and breaks it.",
        "/tmp/gpuplan-ENGINE.lock on the host, held by a shell that ends with its SSH session",
    ),
    _page(
        "GP851",
        "Containers of another deploy were left",
        "Beside the containers that count there are others of the same name, from another deploy or meant to be short-lived.",
        "They may hold GPUs, ports and disk that the plan takes for free or for used.",
        "gpuplan deploy of the same name removes them; gpuplan stop NAME removes all containers of the deployment.",
        "label io.gpuplan.plan-id differs",
    ),
    _page(
        "GP852",
        "A deploy was interrupted",
        "Containers were made and not all of them were started, and no gpuplan holds the lock of their hosts.",
        "A run that is killed cannot take back what it did. Nothing of it is lost sight of: labels name the deployment.",
        "Run the same gpuplan deploy again: what is as asked is used, the rest is made anew. Or gpuplan stop NAME.",
        "container state `created` without a lock",
    ),
    _page(
        "GP853",
        "Somebody works on this deployment",
        "A run of gpuplan holds the lock of its hosts; what is shown is a moment of a deploy or stop.",
        "Members may be missing or not started without anything being wrong.",
        "Wait, and look again. gpuplan unlock shows who it is.",
        "/tmp/gpuplan-ENGINE.lock on the host",
    ),
    _page(
        "GP854",
        "GPU memory did not come back",
        "The containers have ended, and a device still reports less free memory than four fifths of what they had claimed.",
        "The next deployment on it is planned on what is reported, and may not fit.",
        "gpuplan probe names the processes that hold memory. A process that cannot be killed hangs in the driver: sudo dmesg -T "
        "| grep -i xid, and a reboot as the last resort.",
        "S4.7: at least 80 % within 30 seconds, polled",
    ),
    _page(
        "GP855",
        "Requests were cut off",
        "The server was stopped while it still worked on requests; their clients see a broken connection.",
        "Waiting longer would have let them end, as long as no new ones come.",
        "Take the endpoint out of the router before stopping, or give more time: gpuplan stop NAME --drain 300.",
        "vllm:num_requests_running of /metrics",
    ),
    _page(
        "GP856",
        "Not everything was stopped",
        "A host did not answer, or its engine refused to stop or remove a container.",
        "The container may still run and hold its GPUs; its labels keep it known.",
        "gpuplan status shows it as soon as the host answers again; then run gpuplan stop NAME once more.",
        "the engine's own words",
    ),
    _page(
        "GP857",
        "The lock of a host was lost",
        "The shell that held the lock ended, or did not answer for so long that it may have.",
        "Another run may hold the lock now, so this one touches the host no further.",
        "gpuplan status shows what is there; run the same command again.",
        "a beat every 15 seconds, a lease of 60",
    ),
    _page(
        "GP858",
        "A deployment cannot be restarted as it is",
        "A member of it is missing, is being removed, or is on a host that does not answer; or its containers became others "
        "while it was asked about.",
        "A restart makes no containers: it ends and starts those that are there, all of them, or the members would wait "
        "for each other in vain.",
        "Once the silent host answers again: gpuplan restart NAME. Where a container is gone for good: gpuplan deploy with the "
        "same --name makes all of them anew.",
        "label io.gpuplan.members names what belongs to it",
    ),
    _page(
        "GP859",
        "A restart did not come to its end",
        "A container could not be ended or started, a member ended while it loaded, a host fell silent, or the server did "
        "not answer in time.",
        "The containers are left as they are, with their logs; none was removed, and GPUs may be held by those that run.",
        "gpuplan logs NAME shows why; findings before this one name the cause where it is known. Then gpuplan restart NAME, or "
        "gpuplan deploy with the same --name.",
        "started in the order of a deploy; 2 hours from the start to the answer at most",
    ),
)
