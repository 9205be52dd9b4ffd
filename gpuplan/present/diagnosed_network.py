"""What is said of failed deployments: members that do not find or lose each other (GP768 to GP784)."""

from gpuplan.present.diagnosed import Told

NETWORK = (
    Told(
        code="GP768",
        title="A member did not join",
        headline="{place}: {joined} of {members} members joined within {seconds} s",
        means="A member did not start, ended before it joined, or cannot reach this host's master port.",
        matters="All members must join before anything is loaded.",
        hint="look at the missing member first: {logs}; gpuplan check tests the ways between hosts",
        do=(
            "The missing member's own log says more. If it runs, its way to this host is blocked: members need open TCP "
            "between each other on all ports."
        ),
        source="torch.distributed TCPStore, measured",
    ),
    Told(
        code="GP769",
        title="The leader cannot be reached",
        headline="{place}: cannot reach the leader[ at {address} port {port}]",
        means="A firewall, an address other hosts cannot reach (127.x, a Docker bridge), or a leader that has ended.",
        matters="The member cannot join.",
        hint="nc -vz ADDRESS PORT on {host}; set data_address or interface in the inventory where the address is wrong",
        do=(
            "Test the way: nc -vz ADDRESS PORT from the member. Set data_address and interface in the inventory; open TCP "
            "between the members."
        ),
        source="vLLM issue 19670",
    ),
    Told(
        code="GP770",
        title="A port is taken",
        headline="{place}: a port is taken[: {port}]",
        means="Another process listens where this server was to.",
        matters="The server cannot start there.",
        hint="ss -ltnp on {host} shows who; deploy again: other ports are allotted",
        do="ss -ltnp shows who listens. A new deploy allots other ports.",
        source="torch.distributed TCPStore, measured",
    ),
    Told(
        code="GP771",
        title="The HTTP port is taken",
        headline="{place}: the HTTP port is taken[: {address} port {port}]",
        means=(
            "Two servers bound the same port: an engine binds it before it loads and listens only after, so nobody sees it "
            "taken."
        ),
        matters="The one that listens second ends, after it has loaded the model.",
        hint="ss -ltnp on {host} shows who; deploy again: another port is allotted",
        do=(
            "ss -ltnp shows who listens. A new deploy allots another port; gpuplan also counts the ports of its containers "
            "that still load."
        ),
        source="measured with vLLM 0.33: two servers, one port",
    ),
    Told(
        code="GP772",
        title="Two members chose one port",
        headline="{place}: a queue's port is taken[: {address}]",
        means="VLLM_PORT makes every process of a host count upwards from the same port.",
        matters="One of them cannot bind; the others lose it.",
        hint="take VLLM_PORT out of env: in the inventory and out of the image, then deploy again",
        do="Remove VLLM_PORT. Releases 0.25 and 0.26 have the race, 0.33 lets the system choose.",
        source="gpustack issue 6019",
    ),
    Told(
        code="GP773",
        title="No such network interface",
        headline="{place}: there is no network interface[ {interface}]",
        means="GLOO_SOCKET_IFNAME must be the exact name on this host, without an equals sign.",
        matters="The member cannot talk to the others.",
        hint="ip -br addr on {host} lists the names; set interface: for this host in the inventory",
        do=(
            "ip -br addr lists the names, which differ from host to host. Set interface: for each host in the inventory."
        ),
        source="Gloo, measured with vLLM 0.33",
    ),
    Told(
        code="GP774",
        title="A member advertises the loopback address",
        headline="{place}: members would be told to connect to the loopback address",
        means="The host's name resolves to 127.0.x.x, and no interface was set.",
        matters="Other hosts connect to themselves.",
        hint="set interface: for {host} in the inventory, or correct its line in /etc/hosts",
        do=(
            "Set interface: in the inventory: gpuplan sets GLOO_SOCKET_IFNAME and VLLM_HOST_IP from it. Or correct "
            "/etc/hosts."
        ),
        source="vLLM issue 7074",
    ),
    Told(
        code="GP775",
        title="NCCL found no interface",
        headline="{place}: NCCL found no network interface to use",
        means="NCCL_SOCKET_IFNAME matches nothing on this host.",
        matters="NCCL cannot start.",
        hint="ip -br addr on {host} lists the names; set interface: for this host in the inventory",
        do="Set interface: for each host in the inventory, and take NCCL_SOCKET_IFNAME out of env:.",
        source="NCCL documentation",
    ),
    Told(
        code="GP776",
        title="RDMA may not lock memory",
        headline="{place}: RDMA may not lock enough memory[ ({call})]",
        means="InfiniBand pins memory, and the container's limit on locked memory is too low.",
        matters="NCCL cannot use the network cards.",
        hint="docker info | grep -i memlock; raise LimitMEMLOCK=infinity for docker.service on {host}, then restart it",
        do="Containers with RDMA get memlock -1 and IPC_LOCK; the Docker service must allow it: LimitMEMLOCK=infinity.",
        source="nccl-tests issue 206",
    ),
    Told(
        code="GP777",
        title="NCCL uses plain TCP",
        headline="{place}: NCCL found no RDMA device and uses plain TCP",
        means="No InfiniBand or RoCE device is in the container, or a filter excludes it.",
        matters="Tensor parallel over hosts becomes many times slower; nothing fails.",
        hint="ls /dev/infiniband on {host}; RDMA devices that the probe finds are passed in",
        do=(
            "Check ibstat and /dev/infiniband on the host, and that NCCL_IB_DISABLE and NCCL_IB_HCA are not set by hand."
        ),
        source="NCCL documentation, NET/IB and NET/Socket",
    ),
    Told(
        code="GP778",
        title="GPUs hang when they talk to each other",
        headline="{place}: silent[ for {silent_seconds} s] since NCCL was set up",
        means=(
            "GPUs cannot reach each other's memory over PCIe, mostly because IOMMU or ACS is on; the first collective never "
            "ends."
        ),
        matters="It does not recover, and nothing is printed.",
        hint=(
            'env: {NCCL_P2P_DISABLE: "1"} in the inventory and -- --disable-custom-all-reduce; or turn ACS and IOMMU off in '
            "the BIOS"
        ),
        do=(
            "Set NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce; or turn off ACS and IOMMU. nvidia-smi topo -p2p r shows "
            "what the driver allows."
        ),
        source="vLLM issue 8058",
    ),
    Told(
        code="GP779",
        title="Members wait for each other",
        headline="{place}: the members wait for each other[, silent for {silent_seconds} s][ ({milliseconds} ms)]",
        means=(
            "Some ranks are in a collective that others never enter: different images, a half-open firewall, or a fault of "
            "this release."
        ),
        matters="It ends with a time-out, or never.",
        hint="{logs} shows which member is behind; env: {NCCL_DEBUG: INFO} tells what NCCL does",
        do=(
            "Compare the members' last lines: the one behind is where to look. The image must be the same everywhere; open "
            "TCP between members; try another release."
        ),
        source="vLLM issue 52907",
    ),
    Told(
        code="GP780",
        title="The leader came too late",
        headline="{place}: no answer from the leader within {minutes} minutes",
        means=(
            "A data-parallel member waits five minutes for the front end; the leader started later, or cannot be reached."
        ),
        matters="The member ends and cannot join any more.",
        hint="deploy again: images and weights are there now, so the members start together",
        do=(
            "Deploy again. Members must start within minutes of each other, which they do once images and weights are "
            "everywhere."
        ),
        source="vLLM v1/engine/core.py",
    ),
    Told(
        code="GP781",
        title="NCCL failed",
        headline="{place}: NCCL failed[: {reason}]",
        means="NCCL tells only the kind of error; the reason stands in its own warnings.",
        matters="The collective, and with it the server, cannot go on.",
        hint=(
            "deploy again with env: {NCCL_DEBUG: INFO} in the inventory and read the NCCL WARN lines: gpuplan logs "
            "{deployment}"
        ),
        do=(
            "NCCL_DEBUG=INFO prints the reason: /dev/shm too small, an interface, a driver. A system error without one is "
            "mostly /dev/shm."
        ),
        source="NCCL documentation",
    ),
    Told(
        code="GP782",
        title="Two ranks on one GPU",
        headline="{place}: ranks {first} and {second} use the same GPU",
        means="Two ranks of one server were given the same device.",
        matters="NCCL refuses.",
        hint="take CUDA_VISIBLE_DEVICES out of env: in the inventory; gpuplan status shows who uses which GPU",
        do="Remove CUDA_VISIBLE_DEVICES and device ids of your own. gpuplan status shows the GPUs of each deployment.",
        source="NCCL init.cc, duplicate GPU check",
    ),
    Told(
        code="GP783",
        title="A member lost another",
        headline="{place}: lost its connection to another member",
        means="What a member prints when another ends. It is never the cause.",
        matters="Members of one server end together; headless ones may go on printing this for ever.",
        hint="the member that ended first has the cause: {logs}",
        do="Look at the member that ended first. The whole group has to start anew.",
        source="torch.distributed TCPStore and Gloo; vLLM issue 32136",
    ),
    Told(
        code="GP784",
        title="A member hangs",
        headline="{place}: hangs[ in {call}][, silent for {silent_seconds} s]",
        means="A rank waits for one that no longer answers: it failed unseen, or waits in a collective.",
        matters="/health may answer 200 until a time-out of several minutes.",
        hint="{logs} shows the last line of each member; then stop and deploy again",
        do="The member with the oldest last line is where to look. Stop the whole group and start it anew.",
        source="vLLM pull request 53597",
    ),
)
