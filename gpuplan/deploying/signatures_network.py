"""Wordings of members that do not find, or lose, each other (deploy-failures rows 54 to 71)."""

from gpuplan.deploying.signature import likely, remark, root, secondary

NETWORK = (
    root(
        "NET_FOLLOWER_MISSING",
        "waiting for clients.",
        pattern=r"Timed out after (?P<seconds_n>\d{1,7}) seconds waiting for clients\. "
        r"(?P<joined_n>\d{1,6})/(?P<members_n>\d{1,6}) clients joined",
    ),
    root(
        "NET_MASTER_UNREACHABLE",
        "The client socket has timed out",
        "The client socket has failed to connect to any network address",
        pattern=r"The client socket has (?:timed out after (?P<wait>\d{1,9}m?s) while trying to connect to|"
        r"failed to connect to any network "
        r"address of) \(?(?P<address>[\w.:\[\]-]{1,80}), (?P<port_n>\d{1,5})\)?",
    ),
    root(
        "NET_PORT_IN_USE",
        "has failed to listen on any local network address",
        pattern=r"failed to listen on any local network address\.(?: port: (?P<port_n>\d{1,5}))?",
    ),
    root("NET_PORT_IN_USE", "EADDRINUSE", pattern=r"EADDRINUSE(?:.{0,80}?port:? ?(?P<port_n>\d{1,5}))?"),
    root(
        "NET_ZMQ_PORT",
        "ZMQError: Address already in use",
        pattern=r"Address already in use(?: \(addr='(?P<address>tcp://[^']{1,80}:(?P<port_n>\d{1,5}))'\))?",
    ),
    root(
        "NET_HTTP_PORT",
        "address already in use",
        pattern=r"\[Errno 98\].{0,120}?(?:address \('?(?P<address>[^',]{1,60})'?, (?P<port_n>\d{1,5})\))?"
        r".{0,20}address already in use",
    ),
    root("NET_HTTP_PORT", "[Errno 98] Address already in use"),
    root(
        "NET_IFACE",
        "Unable to find address for:",
        pattern=r"Unable to find address for: (?P<interface>[\w=.:-]{1,40})",
    ),
    root(
        "NET_LOOPBACK",
        "Gloo connectFullMesh failed",
        pattern=r"Gloo connectFullMesh failed.{0,200}?(?:remote=\[(?P<address>127\.[\d.]{1,12})\])",
    ),
    likely("NET_LOOPBACK", "Using the loopback address as fallback", several_hosts=True),
    likely("NET_RDV_HANG", "Gloo connectFullMesh failed"),
    root("NCCL_NO_IFACE", "no socket interface found", "No socket interface found"),
    root(
        "NCCL_MEMLOCK",
        "Cannot allocate memory",
        pattern=r"(?P<call>ibv_\w{1,40})\b.{0,80}Cannot allocate memory",
    ),
    remark("NCCL_SLOW", "NET/IB : No device found", several_hosts=True),
    remark("NCCL_SLOW", "via NET/Socket", several_hosts=True),
    root(
        "NCCL_DUPLICATE_GPU",
        "Duplicate GPU detected",
        pattern=r"Duplicate GPU detected : rank (?P<first_n>\d{1,6}) and rank (?P<second_n>\d{1,6})",
    ),
    likely(
        "NCCL_P2P_HANG",
        "Cuda failure",
        pattern=r"NCCL WARN .{0,60}Cuda failure (?:\d{1,4} )?'?(?P<reason>peer access is not supported[^']{0,60})",
    ),
    likely(
        "NCCL_ERROR",
        "unhandled system error",
        "unhandled cuda error",
        "ncclSystemError",
        "ncclUnhandledCudaError",
        "ncclInternalError",
        "ncclInvalidUsage",
        pattern=r"(?P<reason>unhandled (?:system|cuda) error|nccl(?:System|UnhandledCuda|Internal)Error|ncclInvalidUsage)",
    ),
    likely(
        "NET_RDV_HANG",
        "Watchdog caught collective operation timeout",
        pattern=r"OpType=(?P<operation>\w{1,40}).{0,200}?ran for (?P<milliseconds_n>\d{1,12}) milliseconds",
    ),
    likely(
        "NET_RDV_HANG", "wait timeout after", pattern=r"wait timeout after (?P<milliseconds_n>\d{1,12})ms"
    ),
    likely(
        "NET_RDV_HANG",
        "Timed out waiting",
        pattern=r"Timed out waiting (?P<milliseconds_n>\d{1,12})ms for (?:recv|send) operation",
    ),
    root(
        "DP_HANDSHAKE",
        "Did not receive response from front-end process within",
        pattern=r"front-end process within (?P<minutes_n>\d{1,4}) ?minutes",
    ),
    likely("RUN_SILENT_HANG", "timed out", pattern=r"RPC call to (?P<call>\w{1,60}) timed out"),
    likely(
        "RUN_READY_TIMEOUT",
        "Timed out waiting for engine core processes to start",
        "Did not receive ready signal from",
        "VLLM_ENGINE_READY_TIMEOUT_S",
        pattern=r"Timed out waiting for engine core processes to start|did not .{0,60}VLLM_ENGINE_READY_TIMEOUT_S"
        r"|VLLM_ENGINE_READY_TIMEOUT_S.{0,60}(?:exceeded|increase)|Did not receive ready signal",
    ),
    secondary("RUN_PEER_LOST", "recvValue failed"),
    secondary("RUN_PEER_LOST", "sendBytes failed"),
    secondary("RUN_PEER_LOST", "Connection closed by peer"),
    secondary("RUN_PEER_LOST", "Connection reset by peer"),
    secondary("RUN_PEER_LOST", "Broken pipe"),
    secondary("RUN_PEER_LOST", "Connection was likely closed"),
    secondary("RUN_PEER_LOST", "remote process exited or there was a network error", "ncclRemoteError"),
    secondary("RUN_PEER_LOST", 'Failed to check the "should dump" flag on TCPStore'),
    secondary("RUN_ENGINE_FAILED", "Engine core initialization failed"),
    secondary(
        "RUN_ENGINE_FAILED",
        "EngineCore failed to start",
        "EngineCore encountered a fatal error",
        "EngineDeadError",
    ),
    secondary("RUN_ENGINE_FAILED", "died unexpectedly"),
    secondary(
        "RUN_ENGINE_FAILED",
        "WorkerProc initialization failed",
        "WorkerProc failed to start",
        "WorkerProc hit an exception",
    ),
    secondary("RUN_ENGINE_FAILED", "Engine process failed to start", "Engine loop is not running"),
    secondary("RUN_ENGINE_FAILED", "Background loop is stopped", "The API server is shutting down because"),
)
