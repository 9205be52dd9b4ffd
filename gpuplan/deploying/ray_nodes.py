"""Which nodes a Ray cluster has: the program that is run inside a container of it, and what it prints, read.

vLLM is started only when every planned address is registered with every planned GPU (S1.13): its own wait is half an
hour long and names nobody.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

MARK = "gpuplan-ray-nodes "
"""Begins the line of the answer; Ray writes other lines around it."""

SECONDS = 40
"""The program ends by itself after so long: Ray's clients try on for minutes where a head does not answer."""

PROGRAM = f"""\
import json, os, signal, socket, sys
signal.alarm({SECONDS})
address = sys.argv[1]
host, _, port = address.rpartition(":")
def is_open():
    try:
        return not socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError:
        return False
def by_gcs():
    from ray._raylet import GcsClient
    known = GcsClient(address=address).get_all_node_info(timeout=10)
    return [(node.node_manager_address, node.state == 0, dict(node.resources_total)) for node in known.values()]
def by_driver():
    import ray
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    return [(node["NodeManagerAddress"], node["Alive"], node["Resources"]) for node in ray.nodes()]
try:
    nodes = by_gcs() if is_open() else []
except (ImportError, AttributeError, TypeError):
    nodes = by_driver()
said = [dict(address=ip, alive=bool(alive), gpus=resources.get("GPU", 0)) for ip, alive, resources in nodes]
print({MARK!r} + json.dumps(said), flush=True)
os._exit(0)
"""
"""`python3 -c PROGRAM ADDRESS`, with the cluster's `IP:PORT`, in the environment of Ray's own container (its token).

It asks the head's table of nodes (Ray 2.60: 0.5 s), and where this Ray has no such client, through a driver as every
version since 2.9 can (2 s). Before the head listens there are no nodes. It ends without Ray's clean-up, which waits for
threads of its own.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A node as the head knows it."""

    address: str
    """The address it registered with."""
    alive: bool
    gpus: int
    """That it brings; 0 once it is dead."""


def parse(output: str) -> tuple[RayNode, ...] | None:
    """The nodes in what the program wrote on standard output; None where it gave no answer."""
    for line in reversed(output.splitlines()):
        if line.startswith(MARK):
            return _nodes(line.removeprefix(MARK))
    return None


def _nodes(text: str) -> tuple[RayNode, ...] | None:
    try:
        said = json.loads(text)
        return tuple(
            RayNode(address=str(node["address"]), alive=bool(node["alive"]), gpus=int(node["gpus"]))
            for node in said
        )
    except (ValueError, TypeError, KeyError):
        return None


def missing(
    nodes: Sequence[RayNode], planned: Sequence[tuple[str, str, int]]
) -> tuple[tuple[str, str, int, int], ...]:
    """Of the planned (host, address, GPUs): host, address, GPUs planned and GPUs registered, where they are too few.

    A node that died and came back is in the table twice, under one address; only what lives counts.
    """
    there: dict[str, int] = {}
    for node in nodes:
        if node.alive:
            there[node.address] = there.get(node.address, 0) + node.gpus
    return tuple(
        (host, address, gpus, there.get(address, 0))
        for host, address, gpus in planned
        if address not in there or there[address] < gpus
    )
