"""What is said of failed deployments: Ray (GP767, GP785 to GP795); engines that end without a word of why (GP796 to GP799)."""

from gpuplan.present.diagnosed import Told

RAY = (
    Told(
        code="GP785",
        title="The image has no Ray",
        headline="{place}: the image has no Ray",
        means="Official vLLM images carry no Ray since 0.18.",
        matters="The Ray executor cannot start.",
        hint="--executor mp (equal numbers of GPUs per host), or an image with Ray (--image)",
        do="Use --executor mp, or an image that has Ray.",
        source="vLLM issue 33445",
    ),
    Told(
        code="GP786",
        title="Ray or Python differ between hosts",
        headline="{place}: Ray or Python is of another version than the cluster's",
        means="Every node must have the same Ray and the same Python, down to the patch.",
        matters="The node cannot join.",
        hint="use one image on all hosts, by digest; docker images --digests shows them",
        do="Use the same image digest on all hosts.",
        source="gpustack issue 2691",
    ),
    Told(
        code="GP787",
        title="Ray has no node with that address",
        headline="{place}: no node of the cluster can give what was asked for[: {request}]",
        means="The address vLLM was given differs from the one the node registered with, or there are too few GPUs.",
        matters="The placement group never comes.",
        hint="set data_address for each host in the inventory; ray status in the head's container lists the nodes",
        do=(
            "VLLM_HOST_IP must be the address the node registered with: set data_address. ray status lists nodes and GPUs."
        ),
        source="vLLM issue 7815",
    ),
    Told(
        code="GP788",
        title="Ray cannot place the workers",
        headline=(
            "{place}: Ray cannot place the workers[: {gpus} GPUs wanted][, waited {seconds} s][, silent for {silent_seconds} "
            "s]"
        ),
        means="The cluster has too few GPUs: a node is missing, or another job holds them.",
        matters="vLLM waits up to half an hour and then ends.",
        hint="ray status in the head's container shows nodes and GPUs; gpuplan status shows which member is missing",
        do="ray status shows which nodes registered and what is held. Start the group anew when all are there.",
        source="vLLM ray_utils.py",
    ),
    Told(
        code="GP789",
        title="The server does not find its Ray node",
        headline="{place}: the server finds no Ray node on its own host[ ({address})]",
        means="Since 2.54 Ray looks for its node among the processes it can see; in another container it sees none.",
        matters="The server ends after a minute.",
        hint="deploy with gpuplan's own head and server, which share their processes; or an image with Ray 2.52",
        do="The server must share process ids and /tmp with the Ray head.",
        source="measured with Ray 2.60",
    ),
    Told(
        code="GP790",
        title="Another Ray owns the port",
        headline="{place}: another Ray cluster answers on this cluster's port",
        means="A second Ray head on the host uses the same port block.",
        matters="The head ends.",
        hint="deploy again: another block of ports is allotted; ray_ports in the inventory bounds them",
        do="Deploy again, or widen ray_ports in the inventory.",
        source="measured with Ray 2.60",
    ),
    Told(
        code="GP791",
        title="A port of the Ray node is taken",
        headline="{place}: a port of the Ray node is taken[: {port}]",
        means="Another process listens on the node's or the object manager's port.",
        matters="The node does not start.",
        hint="ss -ltnp on {host} shows who; deploy again: another block of ports is allotted",
        do="ss -ltnp shows who listens. Deploy again, or move ray_ports in the inventory.",
        source="measured with Ray 2.60",
    ),
    Told(
        code="GP792",
        title="The Ray head is gone",
        headline="{place}: the Ray head did not answer[ for {seconds} s]",
        means="The head ended, or a firewall is between.",
        matters="Nodes end with it, and the group has to start anew.",
        hint="the head's log has the cause: {logs}",
        do="Look at the head's log. If it runs, its port cannot be reached from this host.",
        source="measured with Ray 2.60",
    ),
    Told(
        code="GP793",
        title="The Ray token differs",
        headline="{place}: Ray refuses this node's token",
        means="The nodes of a cluster share one secret token; this node has none, or another.",
        matters="The node cannot join.",
        hint="gpuplan stop NAME, then deploy again: all nodes get the same new token",
        do="Start the whole group anew. RAY_AUTH_MODE and RAY_AUTH_TOKEN do not belong into env:.",
        source="measured with Ray 2.60, RAY_AUTH_MODE=token",
    ),
    Told(
        code="GP794",
        title="A Ray worker died",
        headline="{place}: a worker of the Ray cluster died",
        means="The worker's own log, on its node, has the reason.",
        matters="The server ends with it.",
        hint="{logs}; on its node /tmp/ray/session_latest/logs/worker-*.err",
        do="Read the log of the Ray containers, and /tmp/ray/session_latest/logs/worker-*.err in them.",
        source="vLLM v1/executor, ray_executor",
    ),
    Told(
        code="GP795",
        title="Ray killed a worker for want of memory",
        headline="{place}: Ray killed workers because the host's memory was nearly full",
        means="Ray's monitor kills workers at 95 % of the host's memory; with unified memory the GPU's counts too.",
        matters="The server ends with its workers.",
        hint='on unified memory env: {RAY_memory_monitor_refresh_ms: "0"} in the inventory; else a host with more RAM',
        do=(
            "On hosts with unified memory turn the monitor off (RAY_memory_monitor_refresh_ms=0) and lower "
            "--gpu-memory-utilization; else use more RAM."
        ),
        source="Ray memory monitor, 95 % of the host",
    ),
    Told(
        code="GP767",
        title="Ray was killed while it drained",
        headline="{place}: Ray was killed before it had drained[ (exit code {exit_code})]",
        means="Ray drains for up to 30 seconds when it is stopped; who stopped it waited less.",
        matters="Nothing is lost but the drain; the container was to end anyway.",
        hint="docker stop -t 60 leaves it time",
        do="Stop with 45 seconds or more. gpuplan stop does.",
        source="measured with Ray 2.60",
    ),
)

RUNS = (
    Told(
        code="GP796",
        title="The engine took too long to get ready",
        headline="{place}: the engine was not ready in the time it has",
        means=(
            "Loading took longer than VLLM_ENGINE_READY_TIMEOUT_S: a slow disk, a network file system, a first compilation."
        ),
        matters="The server gives up although nothing is wrong.",
        hint='env: {VLLM_ENGINE_READY_TIMEOUT_S: "7200"} in the inventory; a local disk for model_dir',
        do=(
            "Raise VLLM_ENGINE_READY_TIMEOUT_S, and keep weights on a local disk. The second start is faster: its "
            "compilations are cached."
        ),
        source="vLLM core_client.py",
    ),
    Told(
        code="GP797",
        title="The engine ended",
        headline="{place}: the engine ended because another part of it failed",
        means="What the engine prints when one of its processes ends. It is never the cause.",
        matters="The cause stands above it, or in another member's log.",
        hint="the cause is told first; all lines: {logs}",
        do="Look above it, and in the other members' logs.",
        source="vLLM v1/engine/core.py and v1/executor/multiproc_executor.py",
    ),
    Told(
        code="GP798",
        title="The process was ended from outside, or crashed",
        headline="{place}: ended with exit code {exit_code}[: {meaning}]",
        means="Its log says nothing of it: the exit code is all there is.",
        matters=(
            "137 is a kill (want of memory, or a stop that took too long), 139 a crash, 143 a stop, 132 a CPU without the "
            "instructions the image needs."
        ),
        hint="sudo dmesg -T | tail -50 on {host} shows kills and crashes; {logs} what it did last",
        do=(
            "137: sudo dmesg -T | grep -i 'killed process'. 139: a crash in a library, try another release. 132: the CPU "
            "lacks AVX: another host. 143: somebody stopped it."
        ),
        source="exit status 128 + signal; Docker exit codes 125 to 127",
    ),
    Told(
        code="GP799",
        title="The cause was not recognised",
        headline="{place}: failed, and the cause was not recognised[ (exit code {exit_code}: {meaning})]",
        means="The logs hold no words that are known. The last lines are quoted as they are, nothing is guessed.",
        matters="New releases print new words.",
        hint="read all of it: {logs}",
        do=(
            "Read the member's log; the line before the last traceback mostly names the cause. A log that ends this way is "
            "worth a report, so that its words become known."
        ),
        source="no signature matched",
    ),
)
