"""What two pictures of a fleet differ in."""

from dataclasses import replace

from gpuplan.domain.fleet import Fleet, Gpu, GpuProcess, Host, HostFailure, HostStatus
from gpuplan.domain.host_facts import Disk, Docker, HostFacts, OurContainer
from gpuplan.present.document import text_of
from gpuplan.present.fleet_changes import FleetChange, changes_text, fleet_changes
from gpuplan.units import GIB

GPU = Gpu(index=0, name="NVIDIA L40S", uuid="GPU-a", total_bytes=44 * GIB, free_bytes=44 * GIB)
HOST = Host(
    name="h1",
    gpus=(GPU,),
    ram_available_bytes=100 * GIB,
    facts=HostFacts(
        driver_version="570.1",
        disks=(Disk(purpose="model_dir", path="/srv", total_bytes=1000 * GIB, free_bytes=500 * GIB),),
        docker=Docker(containers=(OurContainer(name="gpuplan-a-0", state="running"),)),
    ),
)
BEFORE = Fleet(hosts=(HOST,))


def _changes(host: Host) -> list[FleetChange]:
    return list(fleet_changes(BEFORE, Fleet(hosts=(host,))))


def test_nothing_where_nothing_is() -> None:
    assert fleet_changes(BEFORE, BEFORE) == ()
    assert "Nothing is different." in text_of(changes_text(BEFORE, BEFORE, 80))


def test_memory_names_who_came_and_went() -> None:
    earlier = replace(
        GPU, free_bytes=10 * GIB, processes=(GpuProcess(pid=1, name="old", used_bytes=34 * GIB),)
    )
    later = replace(
        GPU, free_bytes=20 * GIB, processes=(GpuProcess(pid=2, name="new", used_bytes=24 * GIB, user="ada"),)
    )
    before, after = (Fleet(hosts=(replace(HOST, gpus=(gpu,)),)) for gpu in (earlier, later))
    (change,) = fleet_changes(before, after)
    assert (change.kind, change.gpu, change.change_bytes) == ("memory", 0, 10 * GIB)
    assert "new (pid 2 of ada, 24.00 GiB) came" in change.words
    assert "old (pid 1, 34.00 GiB) ended" in change.words


def test_a_little_memory_is_no_news() -> None:
    assert _changes(replace(HOST, gpus=(replace(GPU, free_bytes=44 * GIB - 1024),))) == []


def test_a_card_is_known_by_its_uuid() -> None:
    moved = replace(GPU, index=3)
    assert [change.words for change in _changes(replace(HOST, gpus=(moved,)))] == [
        "GPU 0 is now GPU 3 (GPU-a)"
    ]
    other = replace(GPU, uuid="GPU-b")
    assert [change.words for change in _changes(replace(HOST, gpus=(other,)))] == [
        "GPU 0 new: NVIDIA L40S",
        "GPU 0 gone: NVIDIA L40S",
    ]


def test_a_silent_host_has_lost_nothing_else() -> None:
    silent = replace(
        HOST,
        status=HostStatus.UNREACHABLE,
        gpus=(),
        failure=HostFailure(stage="connect", detail="timed out"),
    )
    assert [change.words for change in _changes(silent)] == ["ok → unreachable: timed out"]


def test_hosts_come_and_go() -> None:
    (gone,) = fleet_changes(BEFORE, Fleet(hosts=()))
    (new,) = fleet_changes(Fleet(hosts=()), BEFORE)
    assert (gone.words, new.words) == ("not in the fleet any more", "new: 1 GPU")


def test_what_else_is_told() -> None:
    facts = replace(
        HOST.facts,
        driver_version="580.2",
        disks=(Disk(purpose="model_dir", path="/srv", total_bytes=1000 * GIB, free_bytes=100 * GIB),),
        docker=Docker(containers=(OurContainer(name="gpuplan-a-0", state="exited"),)),
    )
    changed = _changes(replace(HOST, facts=facts, ram_available_bytes=50 * GIB))
    assert [change.kind for change in changed] == ["ram", "software", "container", "disk"]
    assert changed[1].words == "driver: 570.1 → 580.2"
    assert changed[2].words == "container gpuplan-a-0: running → exited"
