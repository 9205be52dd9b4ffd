"""A page for each way the course of a deploy may turn (GP809 to GP829)."""

from gpuplan.present.page import Page
from gpuplan.present.page import page as _page

_ORDER = "order of operations of a deploy"

PAGES: tuple[Page, ...] = (
    _page(
        "GP809",
        "A host cannot start containers with GPUs",
        "Docker, the driver or the container toolkit of a chosen host is not in order, as the probe right before the start saw it.",
        "The engine would take the request and leave a container that never runs.",
        "gpuplan check names the fault and the command that mends it. --host leaves the host out.",
        "the states GP602 to GP604 and GP621 to GP629",
    ),
    _page(
        "GP810",
        "Another port is used",
        "Between the plan and the start somebody began to listen on the port that had been chosen.",
        "vLLM would load the model first and fail at the port afterwards. The next free port of vllm.service_ports is taken; one "
        "you chose with --port is never changed.",
        "Nothing. The endpoint that is printed at the end is the one that holds.",
        _ORDER,
    ),
    _page(
        "GP811",
        "Nothing to do",
        "A deployment of that name runs with the very same containers, image and secrets.",
        "Its spec hash, a label of each container, equals that of what was asked for.",
        "Nothing. Change an option to replace it, or gpuplan stop NAME to end it.",
        "labels io.gpuplan.spec-hash",
    ),
    _page(
        "GP812",
        "Watching what another deploy began",
        "The containers asked for were there, running and not yet serving: most likely an earlier gpuplan ended before they did.",
        "Starting them again would lose the time they have loaded already.",
        "Nothing. It is watched as if this deploy had started it; if it fails it is taken back.",
        "labels io.gpuplan.spec-hash, io.gpuplan.plan-id",
    ),
    _page(
        "GP813",
        "A host fell silent",
        "A host that takes part in the deploy did not answer any more, over SSH or its Docker engine.",
        "A placement over several hosts works with all of them or not at all, and nobody can tell from outside whether the host "
        "comes back.",
        "Everything was taken back on the hosts that answer. What is left on the silent one carries our labels: gpuplan status "
        "shows it once the host is back, gpuplan stop or the next deploy of that name removes it.",
        _ORDER,
    ),
    _page(
        "GP814",
        "It took too long",
        "A step did not come within its time: the first word of a container, the next milestone of the engine, the answer of the "
        "server.",
        "A member that hangs looks just like one that is slow; the list says what each of them said last and how long ago. The "
        "one that is furthest back is named first.",
        "Look into the saved logs of that member. For weights on slow disks give --timeout SECONDS.",
        "vLLM's start-up log, deploy deadlines",
    ),
    _page(
        "GP815",
        "Hosts that could not be looked at",
        "Whether a deployment of that name runs already is read from the labels of containers on every host; some hosts did not "
        "answer.",
        "One that runs there unseen would go on beside the new one.",
        "gpuplan check says what is wrong with them.",
        "labels io.gpuplan.deployment",
    ),
    _page(
        "GP816",
        "The image holds another vLLM",
        "The version installed in the image is not the one the plan was made for.",
        "Memory accounting, defaults and flags change between releases, so the prediction would not be one.",
        "Give --vllm-version as the image has it, or an --image of the version you want.",
        "importlib.metadata in the image, asked once per image id",
    ),
    _page(
        "GP817",
        "The image has no Ray",
        "The placement needs Ray: --executor ray was asked for, or the hosts take part with unlike numbers of GPUs.",
        "vLLM's images carry no Ray since 0.18, and its own multi-node mode wants as many ranks on every host.",
        "Build an image with pip install 'ray>=2.48' on top of vLLM's, or plan with --executor mp.",
        "S1.7, vLLM 0.18 release notes",
    ),
    _page(
        "GP818",
        "Interrupted",
        "Ctrl-C, or a signal, while a deploy was under way.",
        "A half-started deployment is worth nothing and holds memory.",
        "What it had created is removed, what it had stopped runs again. Deploy again when you are ready.",
        _ORDER,
    ),
    _page(
        "GP819",
        "Nodes missing in the Ray cluster",
        "Not every planned host registered with the Ray head, by its address and with all its GPUs.",
        "vLLM would wait for half an hour for GPUs that never come (S1.13).",
        "gpuplan check shows whether the hosts reach each other on their data addresses; the logs of the missing node say what it "
        "tried.",
        "S1.13, ray GcsClient get_all_node_info",
    ),
    _page(
        "GP820",
        "A container's name is taken",
        "A container that gpuplan did not make for this deployment has the name that one of its containers needs.",
        "Containers without gpuplan's labels are never stopped, renamed or removed, whatever they are called.",
        "Deploy under another --name, or rename that container yourself.",
        "labels io.gpuplan.managed, io.gpuplan.deployment",
    ),
    _page(
        "GP821",
        "The name was taken meanwhile",
        "Another deploy began under the same name: on other hosts at the same moment, or for another model while this one "
        "waited for its lock.",
        "A deployment is found by its name; two deploys of one name would each stop what the other has started.",
        "Deploy again once the other is done: it then replaces it, or finds nothing to do. Or give another --name.",
        "labels io.gpuplan.deployment, io.gpuplan.plan-id",
    ),
    _page(
        "GP822",
        "A lock was lost",
        "The connection that held the lock of a host ended while containers were loading.",
        "The lock lives as long as its connection, so that nobody is locked out by a gpuplan that is gone.",
        "Nothing, unless somebody else deploys there at this moment.",
        _ORDER,
    ),
    _page(
        "GP823",
        "Healthy, but no answer",
        "The server says it is healthy and lists the model, and yet one small request failed.",
        "Health says that the engine's process lives. A hung collective or a broken kernel shows with the first request only.",
        "The saved logs of all members were kept. NCCL_DEBUG=INFO in vllm.env of the inventory tells more of a hang.",
        "vLLM issue 32136; deploy-facts on health",
    ),
    _page(
        "GP824",
        "A clock is off",
        "The host's clock differs from this machine's by more than a few seconds.",
        "Log lines of several hosts are put in order by their time; gpuplan subtracts what it measured.",
        "timedatectl set-ntp true on that host.",
        "S4, probe of the host's clock",
    ),
    _page(
        "GP825",
        "Hosts do not reach each other",
        "A connection from one member to another's data address failed, in the last look before the start.",
        "Rendezvous, NCCL and Gloo connect every member to every other on ports nobody can name beforehand.",
        "Open TCP between the data addresses, or name other interfaces in the inventory (interface, data_address).",
        "deploy-facts section 5",
    ),
    _page(
        "GP826",
        "Another model answers",
        "The endpoint is healthy, but the list of its models does not have the name that was deployed.",
        "Another server may listen on that port.",
        "gpuplan status shows the ports of ours; ss -ltnp on the host shows who listens.",
        "/v1/models",
    ),
    _page(
        "GP828",
        "A secret is missing",
        "A container needs a secret whose value nobody gave: an API key of a saved plan, where it is masked.",
        "Plans, labels and logs never hold secrets, so the value has to come from you again.",
        "Repeat it after -- as in the first command, or export it (VLLM_API_KEY, HF_TOKEN) before you deploy.",
        "deploy-facts section 7",
    ),
    _page(
        "GP829",
        "What would make it fit",
        "The failure was a matter of memory or size; the change it asks for was planned again on the same GPUs.",
        "A change is worth trying only if the plan agrees that it starts.",
        "Deploy again with the change. If the prediction was wrong, the saved log shows by how much.",
        "the failure's own figures, planned again",
    ),
)
