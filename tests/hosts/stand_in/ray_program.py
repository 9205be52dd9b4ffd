"""`ray` of the stand-in: `start --head`, `start --address`, `status`, `stop`, `--version`; what a deployer sees of Ray.

Ports are bound and told as Ray's are, a token is asked for, a node that loses the head ends with 1 after a minute.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from tests.hosts.stand_in import faults as orders
from tests.hosts.stand_in import hardware, log, ray_wire

_BOUND = ("node_manager_port", "object_manager_port", "dashboard_agent_grpc_port", "metrics_export_port")
_RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"
_HEAD_ALSO = ("ray_client_server_port", "dashboard_port")
_FLAGS = (
    *("node_manager_port", "object_manager_port", "dashboard_agent_grpc_port", "dashboard_agent_listen_port"),
    *(
        "metrics_export_port",
        "runtime_env_agent_port",
        "min_worker_port",
        "max_worker_port",
        "ray_client_server_port",
    ),
    *("dashboard_port", "num_gpus"),
)


def main() -> None:
    """As the `ray` program of an image is called."""
    words = sys.argv[1:]
    match words[:1]:
        case ["--version"]:
            log.plain(f"ray, version {version('ray')}")
        case ["status"]:
            _status()
        case ["stop"]:
            log.plain("Did not find any active Ray processes.")
        case ["start"]:
            _start(words[1:])
        case _:
            log.error("Usage: ray [OPTIONS] COMMAND [ARGS]...")
            raise SystemExit(2)


def _status() -> None:
    address = os.environ.get("RAY_ADDRESS") or ray_wire.CURRENT.read_text().strip()
    alive = [node for node in ray_wire.nodes(address) if node["alive"]]
    log.plain("======== Autoscaler status ========\nNode status\n" + "-" * 63 + "\nActive:")
    for node in alive:
        log.plain(f" 1 node_{node['address']}")
    log.plain(f"Resources\n{'-' * 63}\nTotal Usage:\n 0.0/{float(sum(node['gpus'] for node in alive))} GPU")


def _start(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="ray start", allow_abbrev=False)
    parser.add_argument("--head", action="store_true")
    parser.add_argument("--address")
    parser.add_argument("--port", type=int, default=6379)
    parser.add_argument("--node-ip-address", default=os.environ.get("VLLM_HOST_IP"))
    parser.add_argument("--block", action="store_true")
    for name in _FLAGS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    options, others = parser.parse_known_args(words)
    if not options.head and options.address is None:
        parser.error("`ray start` should either be given --head or --address")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if not options.block and os.fork():
        return
    faults = orders.find(["ray-head" if options.head else "ray-follower"])
    faults.begin()
    log.plain(f"[stand-in] ray start {' '.join(words)} (unknown here: {others})")
    faults.reach("starting")
    host = options.node_ip_address or socket.gethostbyname(socket.gethostname())
    held = _take_ports(options)
    gpus = options.num_gpus if options.num_gpus is not None else len(hardware.gpus())
    faults.reach("bound")
    try:
        if options.head:
            _lead(options.port, {"address": host, "gpus": gpus, "alive": True})
        address = f"{host}:{options.port}" if options.head else options.address
        ray_wire.CURRENT.parent.mkdir(parents=True, exist_ok=True)
        ray_wire.CURRENT.write_text(address)
        link = None if options.head else _join(address, {"address": host, "gpus": gpus})
    except (ray_wire.Refused, OSError) as error:
        log.error(f"Traceback (most recent call last):\n{error}")
        os._exit(1)
    log.error(
        f"Local node IP: {host}\n\n--------------------\nRay runtime started.\n--------------------",
    )
    faults.reach("joined")
    if link is None:
        threading.Event().wait()
    else:
        _stay(link)
    del held


def _take_ports(options: argparse.Namespace) -> list[socket.socket]:
    """The ports of a node, bound; ends with 1 as Ray does where one is taken."""
    held = []
    for name in (*_BOUND, *(_HEAD_ALSO if options.head else ())):
        port = getattr(options, name)
        if port is None:
            continue
        try:
            held.append(socket.create_server(("", port)))
        except OSError:
            if name == "ray_client_server_port":
                continue
            log.plain(
                f"Failed to start the grpc server. The specified port is {port}.\n"
                f"Exception: The current node timed out during startup. This could happen because some of the raylet failed "
                f"to startup ({name}).",
            )
            os._exit(1)
    return held


def _lead(port: int, ourselves: dict[str, Any]) -> None:
    """Listen for the others."""
    secret = ray_wire.token()
    try:
        server = socket.create_server(("", port))
    except OSError:
        raise ray_wire.Refused(
            "AssertionError: Session name session_2026-11-22_01-02-03_000001_1 does not match persisted value "
            "b'session_2026-11-22_00-00-00_000002_1'. Perhaps there was an error connecting to Redis."
        ) from None
    known = [ourselves]
    threading.Thread(target=_accept, args=(server, known, secret), daemon=True).start()


def _accept(server: socket.socket, known: list[dict[str, Any]], secret: str | None) -> None:
    while True:
        link, _ = server.accept()
        threading.Thread(target=_answer, args=(link, known, secret), daemon=True).start()


def _answer(link: socket.socket, known: list[dict[str, Any]], secret: str | None) -> None:
    with link, link.makefile("rwb") as lines:
        asked = json.loads(lines.readline() or b"{}")
        answer: dict[str, Any] = {"nodes": known}
        if secret is not None and asked.get("token") != secret:
            answer = {"error": "InvalidAuthToken: Authentication token is missing or incorrect"}
        node = {**asked["join"], "alive": True} if "join" in asked and "error" not in answer else None
        if node is not None:
            known[:] = [other for other in known if other["address"] != node["address"]] + [node]
        lines.write(json.dumps(answer).encode() + b"\n")
        lines.flush()
        if node is not None:
            with suppress(OSError):
                lines.readline()  # until it is gone
            node["alive"] = False


def _join(address: str, ourselves: dict[str, Any]) -> socket.socket:
    """Join the cluster, however long the head takes to come."""
    while True:
        try:
            return ray_wire.connect(address, {"join": ourselves})[0]
        except OSError:
            time.sleep(0.2)


def _stay(link: socket.socket) -> None:
    link.settimeout(None)
    with suppress(OSError):
        link.recv(1)
    seconds = int(os.environ.get(_RECONNECT, "60"))
    time.sleep(seconds)
    log.error(
        f"Failed to connect to GCS within {seconds} seconds. GCS may have been killed. It's either GCS is terminated by "
        "`ray stop` or is killed unexpectedly.",
    )
    os._exit(1)
