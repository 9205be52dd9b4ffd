"""An engine that runs on a Ray cluster: it waits for the GPUs it needs, and ends when a node does.

It asks `import ray`, the real one or the stand-in, whichever the image has.
"""

import importlib
import json
import os
import threading
from typing import Any

from tests.hosts.stand_in import log


def await_gpus(needed: int) -> None:
    """Connect, and wait until the cluster has so many GPUs and a node of our own address; ends the program in Ray's words."""
    try:
        ray = importlib.import_module("ray")
        ray.init(address="auto", log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        log.fail("EngineCore", f"{type(error).__name__}: {error}")
    waited = 10.0
    while True:
        nodes = _alive(ray)
        here = os.environ.get("VLLM_HOST_IP")
        if (here is None or here in nodes) and sum(nodes.values()) >= needed:
            log.plain(f"[stand-in] Ray nodes: {json.dumps(nodes)}")
            return
        threading.Event().wait(waited)
        log.line(
            "EngineCore",
            "ray_utils.py:467",
            f"Waiting for creating a placement group of specs for {waited:.0f} seconds. specs={[{'GPU': 1.0}] * needed}. "
            "Check `ray status` and `ray list nodes` to see if you have enough resources, and make sure the IP addresses "
            "used by ray cluster are the same as VLLM_HOST_IP environment variable specified in each node if you are "
            "running on a multi-node.",
        )


def watch() -> None:
    """In the background: end the program when a node of the cluster is lost."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    ray = importlib.import_module("ray")
    before = len(_alive(ray))
    while len(_alive(ray)) >= before:
        threading.Event().wait(1)
    log.fail("EngineCore", "RayWorkerProc rank=1 died unexpectedly, shutting down executor.")


def _alive(ray: Any) -> dict[str, int]:
    """Address and GPUs of the nodes that live; none when the head is silent."""
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
    except (OSError, RuntimeError, getattr(getattr(ray, "exceptions", None), "RayError", OSError)):
        return {}
    return {node["NodeManagerAddress"]: int(node["Resources"].get("GPU", 0)) for node in nodes}
