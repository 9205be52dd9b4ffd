"""One host read from first to last: connect, ask everything at once, then its Docker engine. It never raises."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuplan.domain.fleet import Host, HostFailure, HostStatus
from gpuplan.domain.inventory import LOCAL, HostEntry
from gpuplan.domain.secret_text import without_secrets
from gpuplan.operations.server_loads import with_loads
from gpuplan.probing import assemble, docker, host, nvidia_smi, process_owners
from gpuplan.probing.assemble import Answers
from gpuplan.probing.command import Command
from gpuplan.probing.docker_access import DockerAccess
from gpuplan.probing.nvidia_faults import pci_devices
from gpuplan.probing.output import NOT_RUN, Output
from gpuplan.probing.script import OUTPUT_LIMIT, longest, script, sections
from gpuplan.probing.tool_failure import one_line
from gpuplan.remote.connection import Completed, Connection, ConnectionFailed, Stage

if TYPE_CHECKING:
    from gpuplan.probing.devices import DeviceReport
    from gpuplan.remote.docker_engine import Engine

MOST_SECONDS = 120.0
"""The longest a host is given for all of its answers."""
SILENCE_SECONDS = 10.0
"""A login shell that has printed nothing at all after this time hangs."""
XID = "GP613"
"""What the kernel's log tells, and NVML does not."""
NO_ACCESS = DockerAccess()
_NEVER_REACHED = frozenset({Stage.RESOLVE, Stage.CONNECT, Stage.HOST_KEY, Stage.AUTHENTICATE, Stage.JUMP})

Connect = Callable[[HostEntry], Connection]
"""Opens the connection to an entry's host. Raises ConnectionFailed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A host as it was read, and the connection it was read over, still open where it answered."""

    host: Host
    connection: Connection | None = None
    docker: DockerAccess = NO_ACCESS

    def open_engine(self) -> "Engine":
        """The host's Docker engine. Raises EngineFailed, ConnectionFailed."""
        assert self.connection is not None, "a host that was not reached has no engine"
        return docker.open_engine(self.connection, self.docker)


def read_host(entry: HostEntry, connect: Connect) -> Reading:
    """The host behind an entry, secrets masked; where it cannot be read, with the stage and the reason."""
    reading = _reading(entry, connect)
    return replace(reading, host=without_secrets(reading.host))


def read_again(entry: HostEntry, connection: Connection) -> Reading:
    """The same host over a connection that is open; where it was lost, the reading is a failed one without it."""
    reading = _reading(entry, lambda _entry: connection)
    return replace(reading, host=without_secrets(reading.host))


def _reading(entry: HostEntry, connect: Connect) -> Reading:
    try:
        connection = connect(entry)
    except ConnectionFailed as error:
        return Reading(host=_failed(entry, error))
    try:
        return _read(entry, connection)
    except ConnectionFailed as error:
        connection.close()
        return Reading(host=_failed(entry, error))
    except BaseException:
        connection.close()
        raise


def _failed(entry: HostEntry, error: ConnectionFailed) -> Host:
    return Host(
        name=entry.name,
        address=entry.address,
        status=HostStatus.UNREACHABLE if error.stage in _NEVER_REACHED else HostStatus.FAILED,
        failure=HostFailure(stage=error.stage.value, detail=error.detail),
        labels=entry.labels,
    )


def _read(entry: HostEntry, connection: Connection) -> Reading:
    sent = time.time()
    outputs, done = _ask(connection, assemble.commands(entry))
    if all(output == NOT_RUN for output in outputs.values()):
        raise ConnectionFailed(Stage.COMMAND, _no_answer(done))
    received = time.time()
    nvidia = _nvidia(outputs, local=entry.address == LOCAL)
    access = docker.access(outputs)
    engine = with_loads(connection, docker.probe(connection, access, nvidia=bool(nvidia.gpus)))
    answers = Answers(
        outputs=outputs | _docker_root(connection, engine.docker.root_dir if engine.docker else ""),
        sent=sent,
        received=received,
        address=connection.address,
        nvidia=nvidia,
        engine=engine,
    )
    return Reading(host=assemble.assemble(entry, answers), connection=connection, docker=access)


def _ask(connection: Connection, commands: Sequence[Command]) -> tuple[dict[str, Output], Completed]:
    """Every command's output, and how the script that asked them ended."""
    mark = f"gp{secrets.token_hex(12)}"
    done = connection.run(
        ["sh", "-s"],
        stdin=script(commands, mark),
        timeout=min(MOST_SECONDS, longest(commands)),
        limit=OUTPUT_LIMIT,
        silence=SILENCE_SECONDS,
    )
    return sections(done.stdout, commands, mark), done


def _docker_root(connection: Connection, root: str) -> dict[str, Output]:
    """The disk Docker really uses, where the engine names another directory than the usual one."""
    if root in {"", assemble.DISKS[assemble.DOCKER_ROOT]}:
        return {}
    outputs, _ = _ask(connection, host.disk_commands({assemble.DOCKER_ROOT: root}))
    return {name: output for name, output in outputs.items() if output != NOT_RUN}


def _no_answer(done: Completed) -> str:
    said = one_line((done.stderr or done.stdout).decode(errors="replace"))
    if done.timed_out:
        heard = "nothing was printed" if not done.stdout else "no command was answered"
        return f"logged in, but the login shell hangs: {heard}"
    if done.truncated:
        return f"logged in, but over {OUTPUT_LIMIT // 1024**2} MiB were printed instead of an answer: '{said[:80]}…'"
    status = f"exit status {done.exit_code}" if done.exit_code is not None else "no exit status"
    words = f"it said '{said}'" if said else "it said nothing"
    return f"logged in, but the login shell runs no command ({status}): {words}"


def _nvidia(outputs: Mapping[str, Output], *, local: bool) -> "DeviceReport":
    """NVIDIA's devices: on this machine through NVML, elsewhere and where that shows none as nvidia-smi says."""
    told = nvidia_smi.report(outputs)
    if not local:
        return told
    from gpuplan.probing import nvml

    pci = pci_devices(outputs.get(nvidia_smi.PCI.name, NOT_RUN).text)
    owners = process_owners.parse(outputs.get(nvidia_smi.OWNERS.name, NOT_RUN).text)
    found = nvml.report(pci=pci, owners=owners)
    if not found.gpus:
        return told
    logged = (fact for fact in told.conditions if fact.code == XID)
    return replace(found, links=told.links, conditions=(*found.conditions, *logged))
