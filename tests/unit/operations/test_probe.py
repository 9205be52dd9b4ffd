"""A fleet is read host by host: order, failures, interruption, two names of one machine."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuplan.domain.fleet import Basis, HostStatus
from gpuplan.domain.inventory import DeclaredGpus, HostEntry, Inventory, VllmSettings
from gpuplan.operations.probe import DUPLICATE, Interrupted, ProbeOptions, Progress, open_fleet, probe_fleet
from gpuplan.present.unreached import way_back
from gpuplan.remote.connection import Completed, Connection, ConnectionFailed, Stage
from gpuplan.remote.recorded import RecordedConnection, Recording
from gpuplan.remote.ssh_settings import SshSettings
from gpuplan.units import MIB

CSV = (
    "index, uuid, name, pci.bus_id, memory.total [MiB], memory.reserved [MiB], memory.used [MiB],"
    " memory.free [MiB], compute_cap, driver_version\n"
    "0, GPU-{uuid}, NVIDIA L4, 00000000:01:00.0, 23034 MiB, 535 MiB, 0 MiB, 22499 MiB, 8.9, 580.95.05\n"
)


def answered(text: str, code: int = 0) -> Completed:
    return Completed(exit_code=code, stdout=text.encode())


def machine(name: str, *, uuid: str | None = None, machine_id: str | None = None) -> RecordedConnection:
    identity = f"machine_id={machine_id or name}\nhostname={name}\n"
    sections = {"host_identity": answered(identity), "nvidia_csv": answered(CSV.format(uuid=uuid or name))}
    return RecordedConnection(Recording(sections=sections))


def inventory(*names: str, image: str | None = None) -> Inventory:
    hosts = tuple(HostEntry(name=name, address=f"{name}.example") for name in names)
    return Inventory(path="inventory.yaml", hosts=hosts, vllm=VllmSettings(image=image))


def options(connect: Callable[[HostEntry], Connection], jobs: int = 8) -> ProbeOptions:
    nowhere = Path("/nonexistent")
    return ProbeOptions(ssh=SshSettings(known_hosts=nowhere, home=nowhere), jobs=jobs, connect=connect)


def test_hosts_come_in_the_order_of_the_inventory_whoever_is_first() -> None:
    others_are_read = threading.Event()

    def connect(entry: HostEntry) -> Connection:
        if entry.name == "a":
            assert others_are_read.wait(10)
        return machine(entry.name)

    told: list[Progress] = []

    def progress(step: Progress) -> None:
        told.append(step)
        if step.done == 2:
            others_are_read.set()

    fleet = probe_fleet(
        inventory("a", "b", "c", image="vllm/vllm-openai:v0.30.0"), options(connect), progress
    )
    assert [host.name for host in fleet.hosts] == ["a", "b", "c"]
    assert told[-1].last.name == "a"
    assert [(step.done, step.waiting, step.failed) for step in told] == [(1, 2, 0), (2, 1, 0), (3, 0, 0)]
    assert (fleet.basis, fleet.image) == (Basis.MEASURED, "vllm/vllm-openai:v0.30.0")
    assert fleet.taken_at is not None
    assert fleet.taken_at.endswith("Z")


@pytest.mark.parametrize(
    ("stage", "status"),
    [(stage, HostStatus.UNREACHABLE) for stage in Stage if stage not in {Stage.COMMAND, Stage.CANCELLED}]
    + [(Stage.COMMAND, HostStatus.FAILED)],
)
def test_a_failure_is_the_hosts_own(stage: Stage, status: HostStatus) -> None:
    def connect(entry: HostEntry) -> Connection:
        if entry.name == "bad":
            raise ConnectionFailed(stage, "because of <this>")
        return machine(entry.name)

    bad, good = probe_fleet(inventory("bad", "good"), options(connect)).hosts
    assert (bad.status, bad.failure and bad.failure.stage, bad.failure and bad.failure.detail) == (
        status,
        stage.value,
        "because of <this>",
    )
    assert (good.status, len(good.gpus)) == (HostStatus.OK, 1)


def test_a_shell_that_answers_nothing_is_a_failure_with_its_words() -> None:
    done = Completed(exit_code=1, stdout=b"This account is closed.\n")
    mute = RecordedConnection(Recording(commands={("sh", "-s"): done}))
    (host,) = probe_fleet(inventory("a"), options(lambda _entry: mute)).hosts
    assert host.failure is not None
    assert host.failure.stage == "command"
    assert "This account is closed." in host.failure.detail


def test_no_secret_of_a_host_is_kept() -> None:
    done = Completed(exit_code=1, stdout=b"cannot log in with token=abcdefgh12345\n")
    mute = RecordedConnection(Recording(commands={("sh", "-s"): done}))
    (host,) = probe_fleet(inventory("a"), options(lambda _entry: mute)).hosts
    assert host.failure is not None
    assert "cannot log in with token=***" in host.failure.detail


def test_an_interrupt_keeps_what_was_read_and_waits_for_nobody() -> None:
    never = threading.Event()

    def connect(entry: HostEntry) -> Connection:
        if entry.name == "hangs":
            never.wait()
        return machine(entry.name)

    def interrupt(step: Progress) -> None:
        if step.done == 2:
            raise KeyboardInterrupt

    asked = options(connect)
    with pytest.raises(Interrupted) as caught:
        probe_fleet(inventory("a", "hangs", "b"), asked, interrupt)
    a, hangs, b = caught.value.fleet.hosts
    assert (a.status, b.status) == (HostStatus.OK, HostStatus.OK)
    assert hangs.failure is not None
    assert hangs.failure.stage == "cancelled"
    with pytest.raises(ConnectionFailed):
        asked.ssh.cancellation.check()
    never.set()


def test_connections_are_closed_unless_they_are_kept() -> None:
    opened: list[RecordedConnection] = []

    def connect(entry: HostEntry) -> Connection:
        opened.append(machine(entry.name))
        return opened[-1]

    def closed(connection: RecordedConnection) -> bool:
        try:
            connection.run(["true"], timeout=1)
        except ConnectionFailed:
            return True
        return False

    probe_fleet(inventory("a", "b"), options(connect))
    assert [closed(connection) for connection in opened] == [True, True]
    with open_fleet(inventory("c"), options(connect)) as fleet:
        assert not closed(opened[-1])
        assert set(fleet.connections) == {"c"}
    assert closed(opened[-1])
    with pytest.raises(ConnectionFailed, match="closed"):
        fleet.reopen("c")
    assert len(opened) == 4
    assert closed(opened[-1]), "what a late thread opens is not left open"


def test_a_host_is_read_again_over_its_connection() -> None:
    opened: list[Connection] = []

    def connect(entry: HostEntry) -> Connection:
        opened.append(machine(entry.name))
        return opened[-1]

    with open_fleet(inventory("a", "b"), options(connect)) as fleet:
        before = fleet.fleet
        assert fleet.read_again({"a"}).hosts == before.hosts
        assert len(opened) == 2
        fleet.reopen("a")
        assert len(opened) == 3
        opened[-1].close()
        lost = fleet.read_again({"a"}).hosts
        assert [host.status is HostStatus.OK for host in lost] == [False, True]


def test_two_names_of_one_machine_are_one() -> None:
    def connect(entry: HostEntry) -> Connection:
        return machine(entry.name, uuid="same", machine_id="same")

    first, second = probe_fleet(inventory("a", "b"), options(connect, jobs=1)).hosts
    assert [fact.figures["other"] for fact in first.facts.conditions if fact.code == "GP632"] == ["b"]
    assert (second.status, second.gpus) == (HostStatus.FAILED, ())
    assert second.failure is not None
    assert "is the machine that a is" in second.failure.detail
    assert second.failure.stage == DUPLICATE
    headline, _ = way_back(second.failure.stage, second.address)
    assert "two names" in headline, "what mends it is not what mends a login shell"


@pytest.mark.parametrize("same", [{"uuid": "x"}, {"machine_id": "x"}])
def test_machines_cloned_from_one_image_are_two(same: dict[str, str]) -> None:
    hosts = probe_fleet(inventory("a", "b"), options(lambda entry: machine(entry.name, **same))).hosts
    assert [host.status for host in hosts] == [HostStatus.OK] * 2


def test_the_catalogue_and_the_inventory_have_their_say() -> None:
    entry = HostEntry(
        name="a",
        address="a",
        exclude_gpus=(0, 5),
        reserve_vram_bytes=MIB,
        labels=(("zone", "z"),),
        gpus=(DeclaredGpus(name="L4", count=2),),
    )
    whole = Inventory(path="", hosts=(entry,))
    (host,) = probe_fleet(whole, options(lambda _entry: machine("a"))).hosts
    (gpu,) = host.gpus
    assert (gpu.excluded, gpu.reserved_bytes, gpu.compute_capability) == (True, MIB, "8.9")
    assert gpu.bandwidth_bytes_per_second is not None
    assert host.labels == (("zone", "z"),)
    told = {fact.code: fact.figures for fact in host.facts.conditions}
    assert told["GP631"] == {"declared": "2 × L4", "found": "1 × L4"}
    assert told["GP635"] == {"index": 5}
