"""Write the recorded fleet of `gpuplan tui --demo`.

    python -m tests.tools.make_demo_fleet

Each host is a recording of what a probe asks for: nvidia-smi's outputs are those of `tests/data/hosts` and cards cut
out of them, the rest is composed in the form the commands print. The real probe reads the recordings, the real
planner places one deployment on them, its containers and their processes are put into the recording of its host, and
the real probe reads all of it again. What is written: `fleet.json`, a snapshot as `gpuplan probe --save` makes it, and
`containers.json`, our containers as Docker would show them. A test makes both anew and compares.
"""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpuplan.domain.deployment import DeploymentSpec
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.inventory import HostEntry
from gpuplan.operations.deploy_prepare import look
from gpuplan.operations.deploy_request import DeployRequest
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.probe import ProbeOptions, probe_fleet
from gpuplan.remote.connection import Completed, Connection, ConnectionFailed, Stage
from gpuplan.remote.recorded import RecordedConnection, Recording
from gpuplan.remote.ssh_settings import SshSettings
from gpuplan.sources import inventory_yaml, snapshot_json
from gpuplan.tui.demo_containers import DemoContainer, made
from tests.tools import demo_hosts
from tests.tools.demo_hosts import Process

RECORDINGS = Path(__file__).parents[2] / "gpuplan" / "tui" / "recordings"
TAKEN_AT = "2026-11-18T09:12:41Z"
CREATED = "2026-11-17T16:40:05.120000000Z"
STARTED = "2026-11-17T16:40:09.480000000Z"
GENERATION = "691b4f85-d3e2a1"
SERVED = "meta-llama/Llama-3.3-70B-Instruct"
NAME = "llama-70b"
SERVING = ServingOptions(gpus=("h200-a:0,1",), context="32768", engine_args=("--max-num-seqs", "64"))
UNREACHABLE = "h100-e"


def main() -> int:
    for name, text in files().items():
        (RECORDINGS / name).write_text(text)
        print(f"{RECORDINGS / name}: {len(text)} bytes", file=sys.stderr)  # noqa: T201
    return 0


def text_of(containers: Sequence[DemoContainer]) -> str:
    return json.dumps([asdict(one) for one in containers], indent=1, ensure_ascii=True) + "\n"


def make() -> tuple[Fleet, tuple[DemoContainer, ...]]:
    """The fleet with our deployment on it, and its containers."""
    empty = _probed(())
    containers = _containers(_spec(empty))
    return _probed(containers), containers


def _spec(fleet: Fleet) -> DeploymentSpec:
    """What `gpuplan deploy --dry-run` says of the deployment, on the fleet without it."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "fleet.json"
        snapshot_json.save(fleet, path)
        options = FleetOptions(
            environ={"HF_TOKEN": ""},
            cwd=Path(directory),
            inventory=RECORDINGS / "demo-inventory.yaml",
            snapshot=path,
        )
        return look(DeployRequest(reference=SERVED, fleet=options, serving=SERVING, name=NAME)).spec


def _containers(spec: DeploymentSpec) -> tuple[DemoContainer, ...]:
    return tuple(
        replace(
            made(
                replace(one, secrets=()),
                identity=hashlib.sha256(one.name.encode()).hexdigest(),
                generation=GENERATION,
                spec_hash=hashlib.sha256(spec.name.encode()).hexdigest(),
                created=CREATED,
            ),
            state="running",
            health="healthy" if one.health is not None else None,
            started_at=STARTED,
            loaded=True,
        )
        for one in spec.containers
    )


def _probed(containers: Sequence[DemoContainer]) -> Fleet:
    inventory = inventory_yaml.load(RECORDINGS / "demo-inventory.yaml")
    recordings = {entry.name: _recording(entry, containers) for entry in inventory.hosts}

    def connect(entry: HostEntry) -> Connection:
        if entry.name == UNREACHABLE:
            raise ConnectionFailed(Stage.CONNECT, f"{entry.address}:22: no answer within 10 s")
        return RecordedConnection(recordings[entry.name])

    nowhere = Path("/nonexistent")
    reach = ProbeOptions(ssh=SshSettings(known_hosts=nowhere, home=nowhere), connect=connect)
    return replace(probe_fleet(inventory, reach), taken_at=TAKEN_AT)


def _recording(entry: HostEntry, containers: Sequence[DemoContainer]) -> Recording:
    if entry.name == UNREACHABLE:
        return Recording()
    mine = [one for one in containers if one.host == entry.name]
    recorded = demo_hosts.host(
        entry.name,
        entry.address,
        processes=tuple(_processes(mine)),
        containers=tuple(one.listed for one in mine),
        ports=tuple(one.port for one in mine if one.port is not None),
    )
    return Recording(
        sections={name: _completed(answer) for name, answer in recorded.sections.items()},
        sockets=recorded.sockets,
    )


def _processes(containers: Sequence[DemoContainer]) -> list[Process]:
    return [
        Process(
            uuid=uuid,
            pid=process.pid,
            name=process.name,
            mebibytes=(process.used_bytes or 0) // 1024**2,
            user=process.user or "root",
            container=one.id,
        )
        for one in containers
        for uuid, process in one.processes().items()
    ]


def _completed(answer: Any) -> Completed:
    text, code = answer if isinstance(answer, tuple) else (answer, 0)
    return Completed(exit_code=code, stdout=text.encode())


def files() -> Mapping[str, str]:
    """What is written, by the file's name."""
    fleet, containers = make()
    return {"fleet.json": snapshot_json.dumps(fleet), "containers.json": text_of(containers)}


if __name__ == "__main__":
    sys.exit(main())
