"""`import ray` of the stand-in image: what a program needs that asks a cluster for its nodes."""

from typing import Any

from tests.hosts.stand_in import ray_wire

__all__ = ["init", "is_initialized", "nodes", "shutdown"]

_connected: list[str] = []


def init(address: str | None = None, **_: Any) -> None:
    """Connect, as a driver beside a node of the cluster. Raises ConnectionError."""
    try:
        _connected[:] = [ray_wire.cluster(address)]
        nodes()
    except OSError as error:
        raise ConnectionError(f"Failed to connect to Ray cluster at {_connected}: {error}") from error
    except ray_wire.Refused as error:
        raise ConnectionError(str(error)) from error


def is_initialized() -> bool:
    return bool(_connected)


def shutdown() -> None:
    _connected.clear()


def nodes() -> list[dict[str, Any]]:
    """In the words of Ray's own."""
    return [
        {
            "NodeID": str(number),
            "Alive": node["alive"],
            "NodeManagerAddress": node["address"],
            "Resources": {"CPU": 1.0, "GPU": float(node["gpus"])} if node["alive"] else {},
        }
        for number, node in enumerate(ray_wire.nodes(_connected[0]))
    ]
