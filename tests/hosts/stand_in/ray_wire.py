"""How the stand-in Ray's programs speak: one line of JSON each way, over TCP, to the head's port; a token, if there is one.

A node that joined keeps its connection; when it ends, the node is dead.
"""

import json
import os
import socket
from pathlib import Path
from typing import Any

CURRENT = Path("/tmp/ray/ray_current_cluster")
"""Where a node writes the cluster's address, for programs beside it that are told none."""


class Refused(Exception):
    """In Ray's words."""


def token() -> str | None:
    """The secret of the cluster, where authentication is on (Ray >= 2.52)."""
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return None
    given = os.environ.get("RAY_AUTH_TOKEN")
    if given:
        return given
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    try:
        return path.read_text().strip()
    except OSError:
        raise Refused(
            "ray.exceptions.AuthenticationError: Ray token authentication is enabled but no authentication token was found"
        ) from None


def connect(address: str, message: dict[str, Any]) -> tuple[socket.socket, dict[str, Any]]:
    """Say something to the head; the open connection and the answer. Raises OSError, Refused."""
    host, _, port = address.rpartition(":")
    link = socket.create_connection((host, int(port)), timeout=5)
    try:
        link.sendall(json.dumps({**message, "token": token()}).encode() + b"\n")
        answer = json.loads(link.makefile("rb").readline() or b'{"error": "UNAVAILABLE"}')
    except BaseException:
        link.close()
        raise
    if "error" in answer:
        link.close()
        raise Refused(f"ray.exceptions.AuthenticationError: RPC error: {answer['error']}")
    return link, answer


def nodes(address: str) -> list[dict[str, Any]]:
    """`address`, `gpus`, `alive` of every node that ever joined."""
    link, answer = connect(address, {"ask": "nodes"})
    link.close()
    found: list[dict[str, Any]] = answer["nodes"]
    return found


def cluster(address: str | None = None) -> str:
    """The address a driver uses. Raises Refused as Ray does without a node beside it in the process table (row 75)."""
    told = address if address not in (None, "auto") else os.environ.get("RAY_ADDRESS")
    if told is None:
        try:
            told = CURRENT.read_text().strip()
        except OSError:
            raise Refused(
                "Could not find any running Ray instance. Please specify the one to connect to by setting "
                "`--address` flag or `RAY_ADDRESS` environment variable."
            ) from None
    if not _node_beside():
        raise Refused(
            f"No node info found matching attributes: ''\nFailed to connect to Ray cluster at {told}"
        )
    if not CURRENT.exists():
        raise Refused(f"FileNotFoundError: [Errno 2] No such file or directory: '{CURRENT}'")
    return told


def _node_beside() -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"start" in words and any(word.endswith(b"/ray") for word in words):
            return True
    return False
