"""Wordings of Ray: its cluster, its ports, its placement (deploy-failures rows 72 to 81)."""

from gpuplan.deploying.signature import likely, remark, root, secondary

RAY = (
    root(
        "RAY_VERSION",
        "Version mismatch: The cluster was started with",
    ),
    likely(
        "RAY_NODE_IP",
        "No available node types can fulfill resource request",
        pattern=r"fulfill resource requests? (?P<request>\{[^}]{0,200}\})",
    ),
    root(
        "RAY_PG",
        "Cannot provide a placement group",
        pattern=r"placement group (?:requiring|of) (?:(?P<gpus_n>\d{1,6}) (?:GPUs|devices)|.{0,200})"
        r"(?:.{0,80}within (?P<seconds_n>\d{1,7}) seconds)?",
    ),
    likely(
        "RAY_PG",
        "Waiting for creating a placement group of specs for",
        pattern=r"placement group of specs for (?P<seconds_n>\d{3,7}) seconds",
    ),
    remark(
        "RAY_PG",
        "exceeds available GPUs",
        pattern=r"size \((?P<world_n>\d{1,6})\) exceeds available GPUs \((?P<gpus_n>\d{1,6})\)",
    ),
    root("RAY_PIDNS", "No node info found matching attributes"),
    likely(
        "RAY_PIDNS",
        "Failed to connect to Ray cluster at",
        pattern=r"Ray cluster at (?P<address>[\w.:-]{1,80}\d)",
    ),
    root(
        "RAY_GCS_CONFLICT",
        "does not match persisted value",
        pattern=r"Session name (?P<session>\S{1,120}) does not match persisted value",
    ),
    root("RAY_PORT", "The current node timed out during startup"),
    root("RAY_PORT", "Failed to start the grpc server", pattern=r"specified port is (?P<port_n>\d{1,5})"),
    root(
        "RAY_PORT",
        "Ray component",
        pattern=r"Ray component (?P<component>[\w_]{1,40}) is trying to use a port number (?P<port_n>\d{1,5}) that is used by",
    ),
    root(
        "RAY_GCS_LOST",
        "Failed to connect to GCS within",
        pattern=r"connect to GCS within (?P<seconds_n>\d{1,6}) seconds",
    ),
    root(
        "RAY_GCS_LOST",
        "Failed to connect to GCS at address",
        pattern=r"GCS at address (?P<address>[\w.:-]{1,80}\d)",
    ),
    root("RAY_TOKEN", "InvalidAuthToken", "AuthenticationError: RPC error"),
    likely(
        "RAY_WORKER_DEAD",
        "RayWorkerProc",
        pattern=r"RayWorkerProc.{0,60}died unexpectedly",
    ),
    likely(
        "RAY_WORKER_DEAD",
        "The actor died unexpectedly before finishing this task",
        "RayActorError",
        "ActorDiedError",
    ),
    likely("RAY_WORKER_DEAD", "The node was marked dead", "has been marked dead because the detector"),
    secondary("RAY_GCS_LOST", "GCS may have been killed"),
    remark(
        "RAY_STOP_KILLED",
        "Draining for up to",
        pattern=r"Draining for up to (?P<seconds_x>[\d.]{1,8}) seconds",
    ),
)
