"""`gpuplan deploy` of twenty servers on twenty hosts, against one on one of them; each figure with its bound.

    python -m tests.benchmarks.deploy_scale

Twenty test hosts (tests/hosts), each with its own sshd, Docker engine and eight replayed GPUs; a replica of the
stand-in engine on each. Takes root. Prints a table; exits 1 when a bound is broken twice.

Counted are the connections that the hosts' sshds accepted, and what is left of threads and descriptors. Wall time is
compared only as a ratio of two runs side by side. Every deploy runs in a process of its own, after a dry run that
loads its libraries and connects once.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpuplan.domain.deployment import State
from gpuplan.domain.events import At
from gpuplan.operations.deploy import DeployOptions, deploy
from gpuplan.operations.deploy_prepare import look
from gpuplan.operations.deploy_request import DeployRequest
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.probe import ProbeOptions
from gpuplan.present.event_words import event_document
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings
from tests.benchmarks.ssh_scale import open_descriptors, settled
from tests.benchmarks.table import Row, keeps_bounds
from tests.hosts.deploying import Site, lay_site
from tests.hosts.fleet import TWENTY, Fleet, unmet

ROOT = Path(__file__).resolve().parent.parent.parent
HOSTS = int(os.environ.get("GPUPLAN_HOSTS", str(len(TWENTY))))
RATIO = 0.75 * HOSTS
"""One host after the other is HOSTS times one. The hosts share this machine's cores, so what is work of the processor
(twenty engines that start) is done one after the other whatever the deployer does; what is waiting must not be."""
TRIES = 2
"""A broken bound is measured again: a shared machine may run at two thirds of its speed for a while."""
NAME = "scale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One deploy."""

    seconds: float
    serving: int
    """Hosts on which a member runs at the end."""
    connections: int
    """That the hosts' SSH servers accepted."""
    most: int
    """By one of them."""
    threads: int
    """More than before the deploy."""
    descriptors: int
    """Likewise."""


def accepted(logs: Sequence[Path]) -> list[int]:
    """Logins so far, host by host."""
    return [log.read_text(errors="replace").count("Accepted publickey") for log in logs]


def deployed(inventory: str, model: str, directory: Path, replicas: int, logs: Sequence[Path]) -> Measure:
    """Deploy in this process."""
    home = Path.home()
    settings = SshSettings(known_hosts=directory / "accepted", home=home, policy=HostKeyPolicy.STRICT)
    request = DeployRequest(
        reference=model,
        name=NAME,
        fleet=FleetOptions(
            environ=os.environ,
            cwd=directory,
            inventory=Path(inventory),
            reach=lambda: ProbeOptions(ssh=settings),
        ),
        serving=ServingOptions(replicas=replicas),
    )
    options = DeployOptions(
        confirm=lambda _: True,
        state_directory=directory / "state",
        environ=os.environ,
        document_of=event_document,
    )
    look(request)
    settled(0, 0)
    threads, descriptors, before = threading.active_count(), open_descriptors(), accepted(logs)
    start = time.perf_counter()
    outcome = deploy(request, options, _nothing)
    seconds = time.perf_counter() - start
    settled(threads, descriptors)
    new = [now - then for then, now in zip(before, accepted(logs), strict=True)]
    if outcome is None or outcome.deployment.state is not State.RUNNING:
        raise RuntimeError(f"not deployed: {outcome}")
    return Measure(
        seconds=seconds,
        serving=len({member.host for member in outcome.deployment.members if member.state == "running"}),
        connections=sum(new),
        most=max(new),
        threads=threading.active_count() - threads,
        descriptors=open_descriptors() - descriptors,
    )


def _nothing(_: At) -> None:
    """Nobody watches."""


def deploy_apart(site: Site, inventory: Path, replicas: int) -> Measure:
    """`deployed` in a process of its own; what it started is stopped again."""
    order = {
        "inventory": str(inventory),
        "model": str(site.model),
        "directory": str(site.directory),
        "replicas": replicas,
        "logs": [str(host.directory / "logs" / "sshd.log") for host in site.fleet],
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.deploy_scale", "-"],
        input=json.dumps(order),
        cwd=ROOT,
        env=site.environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    site.run("stop", NAME, "--yes", "--drain", "0")
    return Measure(**json.loads(done.stdout))


def as_ordered(text: str) -> Measure:
    order = json.loads(text)
    logs = [Path(path) for path in order["logs"]]
    return deployed(order["inventory"], order["model"], Path(order["directory"]), order["replicas"], logs)


def compare(site: Site, single: Path) -> tuple[Row, ...]:
    """One try."""
    one = deploy_apart(site, single, 1)
    many = deploy_apart(site, site.inventory, HOSTS)
    both = (one, many)
    return (
        (f"{HOSTS} hosts, times one host ({one.seconds:.1f} s)", many.seconds / one.seconds, RATIO),
        ("SSH connections more than hosts", abs(many.connections - HOSTS) + abs(one.connections - 1), 0),
        ("SSH connections to one host", max(measure.most for measure in both), 1),
        ("hosts that do not serve", HOSTS - many.serving, 0),
        ("threads left behind", max(measure.threads for measure in both), 0),
        ("descriptors left behind", max(measure.descriptors for measure in both), 0),
    )


def main() -> int:
    if sys.argv[1:] == ["-"]:
        print(json.dumps(asdict(as_ordered(sys.stdin.read()))))
        return 0
    reason = unmet()
    if reason is not None:
        print(f"not measured: {reason}")
        return int(os.environ.get("GPUPLAN_TEST_HOSTS") == "required")
    with tempfile.TemporaryDirectory() as directory, Fleet(TWENTY[:HOSTS]) as fleet:
        site = lay_site(fleet, Path(directory))
        single = fleet.inventory(Path(directory) / "single.yaml", TWENTY[0].name)
        return int(not keeps_bounds("deploy", lambda: compare(site, single), TRIES))


if __name__ == "__main__":
    sys.exit(main())
