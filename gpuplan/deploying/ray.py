"""`ray start` on the leader (S1.13: a head beside the server) and on the followers, ports in a block (S1.14).

Layout, as Ray 2.60 takes it: +0 GCS, +1 client server, +2 dashboard, +3 unused, +4 agent gRPC, +5 agent HTTP, +6 metrics,
+7 node manager, +8 object manager, +9 runtime-env agent, +10 … +99 workers.
"""

from gpuplan.deploying.addresses import address_with_port
from gpuplan.deploying.ports import RAY_BLOCK, RAY_WORKERS
from gpuplan.units import GIB

STOP_SECONDS = 60
"""`ray start --block` drains for up to 30 s on SIGTERM (measured, 2.60)."""
_OBJECT_STORE = 2 * GIB
"""Plasma lies in shared memory, of which vLLM's own queues need the rest."""


def resources(vendor: str, gpus: int) -> tuple[str, ...]:
    """What a node brings, said and not detected; on Ascend vLLM asks for `NPU`, and `GPU` is what we count."""
    return (f"--num-gpus={gpus}", *((f'--resources={{"NPU": {gpus}}}',) if vendor == "ascend" else ()))


def head_words(*, base: int, address: str, resources: tuple[str, ...], shm_bytes: int) -> tuple[str, ...]:
    """The head: the dashboard listens on its own address alone."""
    return (
        "ray",
        "start",
        "--head",
        f"--port={base}",
        f"--ray-client-server-port={base + 1}",
        f"--dashboard-host={address}",
        f"--dashboard-port={base + 2}",
        *_common(base, address, resources, shm_bytes),
    )


def follower_words(
    *, base: int, head: str, address: str, resources: tuple[str, ...], shm_bytes: int
) -> tuple[str, ...]:
    """A node that joins the head, and ends when the head is gone for a minute."""
    return (
        "ray",
        "start",
        f"--address={address_with_port(head, base)}",
        *_common(base, address, resources, shm_bytes),
    )


def _common(base: int, address: str, resources: tuple[str, ...], shm_bytes: int) -> tuple[str, ...]:
    return (
        "--block",
        "--disable-usage-stats",
        f"--node-ip-address={address}",
        *resources,
        f"--object-store-memory={min(_OBJECT_STORE, max(shm_bytes // 4, 80 * 1024**2))}",
        f"--dashboard-agent-grpc-port={base + 4}",
        f"--dashboard-agent-listen-port={base + 5}",
        f"--metrics-export-port={base + 6}",
        f"--node-manager-port={base + 7}",
        f"--object-manager-port={base + 8}",
        f"--runtime-env-agent-port={base + 9}",
        f"--min-worker-port={base + RAY_WORKERS}",
        f"--max-worker-port={base + RAY_BLOCK - 1}",
    )
