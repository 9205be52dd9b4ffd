"""Every rung in every colour: what is green, what takes it away, and what it is then called."""

from dataclasses import replace
from typing import Any

import pytest

from gpuplan.domain.fact import Severity
from gpuplan.domain.fleet import Gpu, Host
from gpuplan.domain.host_facts import Disk, Interface, OurContainer
from gpuplan.domain.inventory import HostEntry, VllmSettings
from gpuplan.planning.preflight_cuda import Service, cuda_of_tag, is_data_center, judge_driver
from gpuplan.planning.preflight_images import canonical
from gpuplan.planning.preflight_measures import (
    GpuTest,
    GpuTestOutcome,
    HostMeasures,
    Measured,
    ModelFiles,
    PortState,
    PortTest,
    Reach,
    Reachability,
    ReachOutcome,
)
from gpuplan.planning.preflight_report import Preflight, RungName, Status
from gpuplan.present.check_words import tell
from gpuplan.units import GIB, MIB
from tests.preflights import BUILD, DOCKER, FACTS, FREE, IMAGE, MODEL, host, judged, lost, rung, state, wanted

GREEN, AMBER, RED, GREY = Status.GREEN, Status.AMBER, Status.RED, Status.GREY
ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


def found(report: Preflight, name: RungName) -> tuple[Status, str]:
    item = rung(report, name)
    assert tell(item, "h1").headline
    return item.status, item.reason


def test_a_host_on_which_everything_is_well_is_green() -> None:
    report = judged(host())
    assert {item.reason: item.status for item in report.hosts[0].rungs if item.status is not GREEN} == {
        "no_model": GREY
    }
    assert report.hosts[0].status is GREEN
    assert report.ok


def test_a_host_that_is_not_reached_is_red_and_nothing_above_is_judged() -> None:
    report = judged(lost("h1", "connect", "connection refused"), host("h2"))
    first, *others = report.hosts[0].rungs
    assert (first.name, first.status, first.figures["stage"]) == (RungName.SSH, RED, "connect")
    assert {(item.status, item.reason) for item in others} == {(GREY, "unreached")}
    assert len(others) == len(report.hosts[1].rungs) - 1
    assert (report.ok, report.usable) == (False, 1)


@pytest.mark.parametrize(
    "stage", ["resolve", "connect", "host_key", "authenticate", "jump", "command", "cancelled"]
)
def test_every_stage_has_a_way_out_that_names_the_host(stage: str) -> None:
    item = rung(judged(lost("h1", stage, "why")), RungName.SSH)
    told = tell(item, "h1")
    assert stage in told.headline
    assert told.because == ("why",)
    assert told.fix is not None
    assert "{" not in told.fix


@pytest.mark.parametrize(
    ("name", "code", "severity", "status"),
    [
        (RungName.PROBE, "GP636", WARNING, AMBER),
        (RungName.DOCKER, "GP621", ERROR, RED),
        (RungName.DOCKER, "GP622", ERROR, RED),
        (RungName.DOCKER, "GP624", INFO, GREEN),
        (RungName.DOCKER, "GP628", WARNING, AMBER),
        (RungName.GPU, "GP602", ERROR, RED),
        (RungName.GPU, "GP631", WARNING, AMBER),
        (RungName.GPU_HEALTH, "GP608", ERROR, RED),
        (RungName.GPU_HEALTH, "GP611", WARNING, AMBER),
        (RungName.GPU_HEALTH, "GP618", INFO, GREEN),
        (RungName.TOOLKIT, "GP626", ERROR, RED),
        (RungName.INTERFACE, "GP634", ERROR, RED),
        (RungName.IDENTITY, "GP632", ERROR, RED),
    ],
)
def test_states_of_the_host_decide_their_rung_and_no_other(
    name: RungName, code: str, severity: Severity, status: Status
) -> None:
    subject = {"gpu": 1} if code in {"GP608", "GP611", "GP618"} else {}
    figures = {"detail": "said", "other": "h2", "what": "df", "interface": "ib0", "found": ("eth0",)}
    sick = host("h1", conditions=(state(code, severity, subject, **figures),))
    well, report = judged(host("h1"), host("h2")), judged(sick, host("h2"))
    assert rung(report, name).status is status
    changed = [
        before.name
        for before, after in zip(
            (*well.hosts[0].rungs, *well.across), (*report.hosts[0].rungs, *report.across), strict=True
        )
        if before.status is not after.status
    ]
    assert changed == ([] if status is GREEN else [name])
    if status is not GREEN:
        assert f"[{code}]" in tell(rung(report, name), "h1").headline


def test_the_worst_state_speaks_and_the_others_follow() -> None:
    sick = host(conditions=(state("GP611", WARNING, {"gpu": 0}, count=3), state("GP608", ERROR, {"gpu": 1})))
    told = tell(rung(judged(sick), RungName.GPU_HEALTH), "h1")
    assert "[GP608]" in told.headline
    assert any("GPU 0" in line for line in told.because)


def test_a_sick_gpu_that_is_excluded_does_not_count() -> None:
    sick = host(conditions=(state("GP608", ERROR, {"gpu": 1}, detail="lost"),))
    sick = replace(sick, gpus=(sick.gpus[0], replace(sick.gpus[1], excluded=True)))
    assert found(judged(sick), RungName.GPU_HEALTH) == (GREEN, "gpus_sound")


def test_a_host_without_gpus_or_docker_is_red_and_what_needs_them_is_not_judged() -> None:
    bare = replace(host(docker=None), gpus=())
    report = judged(bare)
    assert found(report, RungName.GPU) == (RED, "no_gpu")
    assert found(report, RungName.DOCKER) == (RED, "docker_silent")
    assert {item.reason for item in report.hosts[0].rungs if item.status is GREY} == {
        "needs_gpu",
        "needs_docker",
        "image_absent",
        "no_model",
    }
    all_excluded = replace(host(), gpus=tuple(replace(gpu, excluded=True) for gpu in host().gpus))
    assert found(judged(all_excluded), RungName.GPU) == (RED, "gpus_excluded")


@pytest.mark.parametrize(
    ("support", "expected"),
    [
        (True, (GREEN, "toolkit_registered")),
        (None, (AMBER, "toolkit_unknown")),
        (False, (RED, "toolkit_missing")),
    ],
)
def test_the_toolkit_is_judged_by_what_is_registered(
    support: bool | None, expected: tuple[Status, str]
) -> None:
    assert found(judged(host(docker=replace(DOCKER, gpu_support=support))), RungName.TOOLKIT) == expected


def test_the_toolkit_counts_beside_a_second_vendor() -> None:
    amd = Gpu(index=2, name="AMD Instinct MI300X", vendor="amd", backend="rocm", uuid="0x1", total_bytes=GIB)
    missing = host(docker=replace(DOCKER, gpu_support=False))
    mixed = replace(missing, gpus=(*missing.gpus, amd))
    assert found(judged(mixed), RungName.TOOLKIT) == (RED, "toolkit_missing")
    all_of_them = GpuTest(outcome=GpuTestOutcome.SEEN, uuids=("GPU-h1-0", "GPU-h1-1"))
    assert after_a_container(all_of_them, mixed) == (GREEN, "test_saw_all")


def after_a_container(test: GpuTest, who: Host | None = None) -> tuple[Status, str]:
    measures = {"h1": replace(FREE, gpu_test=test)}
    return found(judged(who or host(), measured=Measured(hosts=measures)), RungName.TOOLKIT)


def test_a_container_that_was_run_has_the_last_word() -> None:
    both = ("GPU-h1-0", "GPU-h1-1", "GPU-of-a-card-with-slices")
    assert after_a_container(GpuTest(outcome=GpuTestOutcome.SEEN, uuids=both)) == (GREEN, "test_saw_all")
    assert after_a_container(GpuTest(outcome=GpuTestOutcome.SEEN, uuids=both[:1])) == (RED, "test_saw_others")
    assert after_a_container(GpuTest(outcome=GpuTestOutcome.FAILED, detail="no driver")) == (
        RED,
        "test_failed",
    )
    assert after_a_container(GpuTest(outcome=GpuTestOutcome.TIMED_OUT, seconds=60)) == (RED, "test_hung")
    assert after_a_container(GpuTest(outcome=GpuTestOutcome.NO_TOOL)) == (AMBER, "test_without_tool")
    assert after_a_container(GpuTest(outcome=GpuTestOutcome.NO_IMAGE)) == (GREY, "test_needs_image")
    missing = host(docker=replace(DOCKER, gpu_support=False))
    assert after_a_container(GpuTest(outcome=GpuTestOutcome.NO_IMAGE), missing) == (RED, "toolkit_missing")
    assert after_a_container(GpuTest(outcome=GpuTestOutcome.SEEN, uuids=both), missing) == (
        GREEN,
        "test_saw_all",
    )


@pytest.mark.parametrize(
    ("driver", "cuda", "data_center", "service"),
    [
        ("580.65.06", (13, 0), False, Service.FULL),
        ("580.65.05", (13, 0), False, Service.NONE),
        ("580.95.05", (13, 2), False, Service.MINOR),
        ("570.133.20", (13, 0), True, Service.FORWARD),
        ("570.133.20", (13, 0), False, Service.NONE),
        ("525.60.13", (13, 0), True, Service.NONE),
        ("570.26", (12, 8), False, Service.FULL),
        ("535.183.01", (12, 9), False, Service.MINOR),
        ("525.60.13", (12, 9), False, Service.MINOR),
        ("525.60.12", (12, 9), False, Service.NONE),
        ("470.256.02", (12, 4), True, Service.FORWARD),
        ("520.61.05", (11, 8), False, Service.FULL),
        ("450.80.02", (11, 8), False, Service.MINOR),
        ("610.43.02", (13, 3), False, Service.FULL),
        ("595.71.05", (12, 1), False, Service.FULL),
        ("570.86", (12, 7), False, Service.FULL),
        ("610.43.02", (13, 9), False, Service.MINOR),
        ("575.51.03", (12, 9), False, Service.FULL),
    ],
)
def test_drivers_against_cuda(
    driver: str, cuda: tuple[int, int], data_center: bool, service: Service
) -> None:
    verdict = judge_driver(driver, cuda, data_center=data_center)
    assert verdict is not None
    assert verdict.service is service


def test_a_driver_or_a_cuda_that_is_none_is_not_judged() -> None:
    assert judge_driver("N/A", (13, 0), data_center=True) is None
    assert judge_driver("390.157", (10, 2), data_center=True) is None
    assert judge_driver("610.43.02", (14, 0), data_center=True) is None, "newer than anything known"


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("580.95.05", (GREEN, "driver_fits")),
        ("570.133.20", (AMBER, "driver_forward")),
        ("470.256.02", (RED, "driver_too_old")),
        (None, (GREY, "driver_unknown")),
    ],
)
def test_the_driver_rung(driver: str | None, expected: tuple[Status, str]) -> None:
    assert found(judged(host(driver_version=driver)), RungName.DRIVER) == expected


def test_the_driver_of_a_geforce_takes_no_forward_compatibility() -> None:
    card = host(driver_version="570.133.20")
    card = replace(card, gpus=tuple(replace(gpu, name="NVIDIA GeForce RTX 4090") for gpu in card.gpus))
    assert found(judged(card), RungName.DRIVER) == (RED, "driver_too_old")


def test_the_cuda_of_an_image_comes_from_the_image_before_its_tag() -> None:
    old = host(
        driver_version="570.133.20", docker=replace(DOCKER, images=(replace(BUILD, cuda_version="12.8.1"),))
    )
    assert found(judged(old), RungName.DRIVER) == (GREEN, "driver_fits")
    absent = host(driver_version="570.133.20", docker=replace(DOCKER, images=()))
    assert rung(judged(absent), RungName.DRIVER).figures["cuda"] == "13.0"
    elsewhere = judged(absent, replace(old, name="h2"))
    assert rung(elsewhere, RungName.DRIVER).figures["cuda"] == "12.8"
    assert found(judged(absent, asked=wanted(image="registry.lan/own:1")), RungName.DRIVER) == (
        GREY,
        "cuda_unknown",
    )


@pytest.mark.parametrize(
    ("image", "cuda"),
    [
        ("vllm/vllm-openai:v0.33.0", (13, 0)),
        ("vllm/vllm-openai:v0.33.0-cu129", (12, 9)),
        ("vllm/vllm-openai:v0.19.1", (12, 9)),
        ("vllm/vllm-openai:v0.11.0", (12, 8)),
        ("vllm/vllm-openai:v0.8.5", (12, 4)),
        ("vllm/vllm-openai:latest", None),
        ("registry:5000/llm/serve:v0.33.0", None),
        ("registry:5000/llm/serve:cuda12.6-1", (12, 6)),
        ("vllm/vllm-openai@sha256:abcd", None),
    ],
)
def test_the_cuda_a_tag_states(image: str, cuda: tuple[int, int] | None) -> None:
    assert cuda_of_tag(image) == cuda


def test_data_center_cards() -> None:
    for name in (
        "NVIDIA H100 80GB HBM3",
        "NVIDIA A100-SXM4-80GB",
        "Tesla T4",
        "NVIDIA L40S",
        "NVIDIA GB200",
        "NVIDIA T4",
    ):
        assert is_data_center([name]), name
    for name in (
        "NVIDIA GeForce RTX 4090",
        "NVIDIA RTX A6000",
        "NVIDIA GB10",
        "NVIDIA T1000",
        "Quadro RTX 8000",
        "NVIDIA TITAN V",
    ):
        assert not is_data_center([name]), name
    assert not is_data_center(["NVIDIA L40S", "NVIDIA GeForce RTX 4090"])
    assert not is_data_center([])


def test_cards_of_other_makers_need_nothing_of_nvidia() -> None:
    amd = host()
    amd = replace(amd, gpus=tuple(replace(gpu, vendor="amd", backend="rocm") for gpu in amd.gpus))
    report = judged(amd)
    assert found(report, RungName.TOOLKIT) == found(report, RungName.DRIVER) == (GREY, "not_nvidia")


def test_the_architecture_of_the_image_is_the_hosts() -> None:
    assert found(judged(host()), RungName.ARCHITECTURE) == (GREEN, "architecture_same")
    assert found(judged(host(architecture="aarch64")), RungName.ARCHITECTURE) == (RED, "architecture_differs")
    arm = replace(DOCKER, images=(replace(BUILD, architecture="arm64"),))
    assert found(judged(host(architecture="aarch64", docker=arm)), RungName.ARCHITECTURE)[0] is GREEN
    absent = replace(DOCKER, images=())
    assert found(judged(host(docker=absent)), RungName.ARCHITECTURE) == (GREY, "image_absent")
    assert found(judged(host(architecture="aarch64", docker=absent)), RungName.ARCHITECTURE)[0] is AMBER
    unknown = replace(absent, architecture=None)
    assert found(judged(host(architecture=None, docker=unknown)), RungName.ARCHITECTURE)[0] is GREY


def disks(**free: float) -> tuple[Disk, ...]:
    return tuple(
        replace(disk, free_bytes=int(free.get(disk.purpose, disk.free_bytes / GIB) * GIB))
        for disk in FACTS.disks
    )


def test_room_for_an_image_that_another_host_has() -> None:
    absent = replace(DOCKER, images=())
    other = host("h2")

    def room(gib: float) -> tuple[Status, str]:
        return found(judged(host(docker=absent, disks=disks(docker_root=gib)), other), RungName.IMAGE_DISK)

    assert found(judged(host(), other), RungName.IMAGE_DISK) == (GREEN, "image_present")
    assert room(75) == (GREEN, "image_room")
    assert room(74.9) == (AMBER, "image_tight")
    assert room(29.9) == (RED, "image_no_room")


def test_room_for_an_image_that_no_host_has_is_judged_by_an_assumed_size_and_says_so() -> None:
    absent = replace(DOCKER, images=())
    tight = judged(host(docker=absent, disks=disks(docker_root=30)))
    assert found(tight, RungName.IMAGE_DISK) == (AMBER, "image_tight")
    assert any("assumed" in line for line in tell(rung(tight, RungName.IMAGE_DISK)).because)
    assert found(judged(host(docker=absent, disks=disks(docker_root=20))), RungName.IMAGE_DISK)[0] is RED
    assert found(judged(host(docker=absent, disks=())), RungName.IMAGE_DISK) == (GREY, "disk_unknown")


def shards(*sizes: float, of: int | None = None) -> tuple[tuple[str, int], ...]:
    count = of or len(sizes)
    names = [
        (f"model-{n:05d}-of-{count:05d}.safetensors", int(size * GIB))
        for n, size in enumerate(sizes, start=1)
    ]
    return (("config.json", 700), *names)


def with_model(files: ModelFiles | None = None, **facts: Any) -> Preflight:
    measures = {"h1": replace(FREE, model=files, model_looked_for=True)}
    return judged(host(**facts), asked=wanted(model=MODEL), measured=Measured(hosts=measures))


def test_room_for_the_weights() -> None:
    assert found(with_model(disks=disks(model_dir=61)), RungName.WEIGHTS) == (GREEN, "weights_room")
    assert found(with_model(disks=disks(model_dir=60.9)), RungName.WEIGHTS) == (RED, "weights_no_room")
    assert found(with_model(disks=()), RungName.WEIGHTS) == (GREY, "no_model_dir")
    assert found(judged(host()), RungName.WEIGHTS) == (GREY, "no_model")
    silent = Measured(hosts={"h1": replace(FREE, model_looked_for=False)})
    unsure = judged(host(disks=disks(model_dir=1)), asked=wanted(model=MODEL), measured=silent)
    assert found(unsure, RungName.WEIGHTS) == (GREY, "weights_not_found_out"), "the files may be there"


def test_image_and_weights_on_one_disk_need_room_for_both() -> None:
    one = tuple(replace(disk, device="sda", free_bytes=80 * GIB) for disk in FACTS.disks)
    assert found(with_model(disks=one), RungName.WEIGHTS) == (GREEN, "weights_room")
    absent = with_model(disks=one, docker=replace(DOCKER, images=()))
    assert found(absent, RungName.WEIGHTS) == (RED, "weights_no_room")


def test_weights_that_are_there() -> None:
    path = "/data/models/Qwen/Qwen3-32B"
    assert found(with_model(ModelFiles(path=path, files=shards(31, 30))), RungName.WEIGHTS) == (
        GREEN,
        "weights_present",
    )
    partial = with_model(ModelFiles(path=path, files=shards(31, 15, of=3)))
    assert found(partial, RungName.WEIGHTS) == (RED, "weights_incomplete")
    assert rung(partial, RungName.WEIGHTS).figures["missing"] == ("model-00003-of-00003.safetensors",)
    assert found(with_model(ModelFiles(path=path, files=shards(31, 0))), RungName.WEIGHTS)[0] is RED
    assert found(with_model(ModelFiles(path=path, files=(("config.json", 7),))), RungName.WEIGHTS)[0] is RED
    assert found(with_model(ModelFiles(path=path, files=shards(20))), RungName.WEIGHTS) == (
        AMBER,
        "weights_small",
    )


def with_ports(*busy: tuple[int, PortState], tool: str | None = "perl", **facts: Any) -> tuple[Status, str]:
    measures = {"h1": HostMeasures(ports=PortTest(busy=busy, tool=tool))}
    return found(judged(host(**facts), measured=Measured(hosts=measures)), RungName.PORTS)


def test_ports() -> None:
    bound, listening, closing = PortState.BOUND, PortState.LISTENING, PortState.CLOSING
    assert with_ports() == (GREEN, "ports_free")
    assert with_ports((40000, bound)) == (AMBER, "ports_taken")
    assert with_ports((39999, bound), (40064, listening)) == (GREEN, "ports_free")
    assert with_ports((40000, closing)) == (GREEN, "ports_free")
    assert with_ports(*((port, listening) for port in range(40000, 40064))) == (RED, "no_service_port")
    assert with_ports(*((port, listening) for port in range(41000, 42000, 100))) == (AMBER, "no_ray_block")
    assert with_ports(*((port, listening) for port in range(41000, 41900, 100))) == (AMBER, "ports_taken")
    assert with_ports(tool=None, listening_ports=(22,)) == (GREEN, "ports_not_listening")
    assert with_ports(tool=None) == (GREY, "ports_unknown")
    assert with_ports(tool=None, listening_ports=(22, 41500)) == (AMBER, "ports_taken")


def test_ports_of_our_own_containers_are_no_strangers() -> None:
    ours = replace(DOCKER, containers=(OurContainer(name="gpuplan-a", ports=(40000, 40001)),))
    assert with_ports((40000, PortState.BOUND), docker=ours) == (GREEN, "ports_free")
    everything = replace(
        DOCKER, containers=(OurContainer(name="gpuplan-a", ports=tuple(range(40000, 40064))),)
    )
    assert with_ports(docker=everything) == (RED, "no_service_port")


def test_ports_the_kernel_gives_out() -> None:
    assert with_ports(ephemeral_ports=(32768, 60999)) == (AMBER, "ports_ephemeral")
    assert with_ports(ephemeral_ports=(41999, 60999)) == (AMBER, "ports_ephemeral")
    assert with_ports(ephemeral_ports=(42000, 60999)) == (GREEN, "ports_free")
    kept = HostMeasures(ports=PortTest(tool="perl", reserved=((40000, 40063), (41000, 41999))))
    some = host(ephemeral_ports=(32768, 60999))
    assert found(judged(some, measured=Measured(hosts={"h1": kept})), RungName.PORTS) == (GREEN, "ports_free")
    few = HostMeasures(ports=PortTest(tool="perl", reserved=((40000, 40062), (41000, 41999))))
    assert found(judged(some, measured=Measured(hosts={"h1": few})), RungName.PORTS)[0] is AMBER


def test_shared_memory() -> None:
    assert found(judged(host()), RungName.SHARED_MEMORY) == (GREEN, "shm_fits")
    assert found(judged(host(disks=disks(shm=0.06))), RungName.SHARED_MEMORY) == (AMBER, "shm_of_host_small")
    busy = replace(host(), ram_available_bytes=9 * GIB)
    assert found(judged(busy), RungName.SHARED_MEMORY) == (AMBER, "shm_beyond_available")
    small = replace(host(), ram_total_bytes=8 * GIB, ram_available_bytes=7 * GIB)
    assert found(judged(small), RungName.SHARED_MEMORY) == (RED, "shm_beyond_ram")
    settings = VllmSettings(shm_size_bytes=64 * MIB)
    assert found(judged(small, asked=wanted(settings=settings)), RungName.SHARED_MEMORY)[0] is GREEN
    unknown = replace(host(disks=()), ram_total_bytes=None, ram_available_bytes=None)
    assert found(judged(unknown), RungName.SHARED_MEMORY) == (GREY, "ram_unknown")


def test_the_data_interface() -> None:
    item = rung(judged(host()), RungName.INTERFACE)
    assert (item.status, item.figures["address"]) == (GREEN, "10.0.0.1")
    assert found(judged(host(data_interface=None)), RungName.INTERFACE) == (AMBER, "no_interface")
    down = (replace(FACTS.interfaces[1], up=False),)
    assert found(judged(host(interfaces=down)), RungName.INTERFACE) == (RED, "interface_down")
    bare = (Interface(name="eth0"),)
    assert found(judged(host(interfaces=bare)), RungName.INTERFACE) == (RED, "interface_unaddressed")
    named = wanted(entries={"h1": HostEntry(name="h1", address="h1", data_address="10.9.9.9")})
    assert (
        rung(judged(host(interfaces=bare), asked=named), RungName.INTERFACE).figures["address"] == "10.9.9.9"
    )


# ---------------------------------------------------------------------- across hosts


def pair(outcome: ReachOutcome = ReachOutcome.REACHED, source: str = "h1", target: str = "h2") -> Reach:
    return Reach(
        source=source, target=target, address="10.0.0.2", port=40000, outcome=outcome, milliseconds=0.4
    )


def reached(*tries: Reach, pairs: int = 2, unaddressed: tuple[str, ...] = ()) -> Preflight:
    measured = Measured(reachability=Reachability(tries=tries, pairs=pairs, unaddressed=unaddressed))
    return judged(host("h1"), host("h2"), measured=measured)


def test_reachability() -> None:
    back = pair(source="h2", target="h1")
    assert found(reached(pair(), back), RungName.REACHABILITY) == (GREEN, "all_reached")
    for outcome in (
        ReachOutcome.REFUSED,
        ReachOutcome.TIMED_OUT,
        ReachOutcome.UNROUTABLE,
        ReachOutcome.STRANGER,
    ):
        report = reached(pair(outcome), back)
        assert found(report, RungName.REACHABILITY) == (RED, "not_all_reached")
        assert "h1 → h2" in tell(rung(report, RungName.REACHABILITY)).because[0]
        assert not report.ok
        assert report.usable == 2
    deaf = pair(ReachOutcome.NO_LISTENER)
    assert found(reached(deaf, back), RungName.REACHABILITY) == (AMBER, "not_all_tried")
    assert found(reached(deaf, replace(deaf, source="h2", target="h1")), RungName.REACHABILITY) == (
        GREY,
        "nothing_listened",
    )
    assert found(reached(unaddressed=("h1", "h2")), RungName.REACHABILITY) == (GREY, "not_all_tried")
    assert found(judged(host("h1"), host("h2")), RungName.REACHABILITY) == (GREY, "not_measured")
    assert found(reached(), RungName.REACHABILITY) == (GREY, "not_measured"), (
        "nothing tried is nothing reached"
    )


def test_a_large_fleet_says_which_directions_were_tried() -> None:
    told = tell(rung(reached(pair(), pair(source="h2", target="h1"), pairs=1560), RungName.REACHABILITY))
    assert "2 of 1560 directions" in told.headline
    assert "ring and a star" in told.because[0]


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        (RungName.MTU, {"data_interface": None}),
        (RungName.CLOCKS, {"clock_offset_seconds": None}),
        (RungName.SAME_DRIVER, {"driver_version": None}),
    ],
)
def test_alike_is_said_of_hosts_that_told_only(name: RungName, fact: dict[str, None]) -> None:
    report = judged(host("h1"), host("h2"), host("h3", **fact))
    assert found(report, name) == (GREY, "alike_where_known")
    assert "not known of h3" in tell(rung(report, name)).headline


def test_hosts_are_alike() -> None:
    report = judged(host("h1"), host("h2"))
    for name, reason in (
        (RungName.IDENTITY, "machines_differ"),
        (RungName.MTU, "mtu_same"),
        (RungName.CLOCKS, "clocks_agree"),
        (RungName.SAME_DRIVER, "driver_same"),
        (RungName.SAME_IMAGE, "image_same"),
    ):
        assert found(report, name) == (GREEN, reason)


def test_hosts_that_differ() -> None:
    def against(**facts: Any) -> Preflight:
        return judged(host("h1"), host("h2", **facts))

    jumbo = (replace(FACTS.interfaces[1], mtu=1500),)
    assert found(against(interfaces=jumbo), RungName.MTU) == (AMBER, "mtu_differs")
    assert found(against(driver_version="570.1"), RungName.SAME_DRIVER) == (AMBER, "driver_differs")
    other = replace(
        DOCKER, images=(replace(BUILD, id="sha256:fedcba", digests=("vllm/vllm-openai@sha256:bbbb",)),)
    )
    assert found(against(docker=other), RungName.SAME_IMAGE) == (AMBER, "image_differs")
    renamed = replace(DOCKER, images=(replace(BUILD, id="sha256:fedcba"),))
    assert found(against(docker=renamed), RungName.SAME_IMAGE) == (GREEN, "image_same")
    assert found(against(docker=replace(DOCKER, images=())), RungName.SAME_IMAGE) == (
        AMBER,
        "image_missing_on",
    )
    assert found(against(machine_id="machine-h1"), RungName.IDENTITY) == (RED, "machine_twice")


@pytest.mark.parametrize(
    ("offsets", "status"),
    [((-2.4, 2.5), GREEN), ((-2.5, 2.5), AMBER), ((3600.0, 3600.5), GREEN), ((0.0, -7.0), AMBER)],
)
def test_clocks_are_compared_with_each_other(offsets: tuple[float, float], status: Status) -> None:
    report = judged(
        *(host(f"h{n}", clock_offset_seconds=offset) for n, offset in enumerate(offsets, start=1))
    )
    assert rung(report, RungName.CLOCKS).status is status


def test_the_clock_of_one_host_is_compared_with_ours() -> None:
    assert rung(judged(host(clock_offset_seconds=6.0)), RungName.CLOCKS).status is AMBER
    assert [item.name for item in judged(host()).across] == [RungName.CLOCKS]


def copies(first: ModelFiles | None, second: ModelFiles | None) -> tuple[Status, str]:
    measures = {
        name: replace(FREE, model=files, model_looked_for=True)
        for name, files in (("h1", first), ("h2", second))
    }
    asked = wanted(model=MODEL)
    return found(
        judged(host("h1"), host("h2"), asked=asked, measured=Measured(hosts=measures)), RungName.SAME_MODEL
    )


def test_copies_of_a_model() -> None:
    one = ModelFiles(
        path="/data/models/m", revision="aaa", files=shards(31, 30), digests=(("config.json", "0" * 64),)
    )
    assert copies(one, one) == (GREEN, "model_same")
    assert copies(one, replace(one, revision="bbb")) == (RED, "model_revisions_differ")
    assert copies(one, replace(one, revision=None)) == (GREEN, "model_same")
    assert copies(one, replace(one, files=shards(31, 29))) == (RED, "model_files_differ")
    assert copies(one, replace(one, files=(*one.files, ("README.md", 5)))) == (GREEN, "model_same")
    assert copies(one, replace(one, digests=(("config.json", "1" * 64),))) == (RED, "model_files_differ")
    assert copies(one, replace(one, path="/srv/m")) == (AMBER, "model_paths_differ")
    assert copies(one, None) == (AMBER, "model_one_host")
    assert copies(None, None) == (GREY, "model_nowhere")


def test_the_order_of_hosts_is_kept_and_changes_no_verdict() -> None:
    hosts = (host("h1", driver_version="570.1"), lost("h2", "connect", "x"), host("h3"))
    forth, back = judged(*hosts), judged(*reversed(hosts))
    assert [ladder.host for ladder in forth.hosts] == ["h1", "h2", "h3"]
    assert {ladder.host: ladder.status for ladder in forth.hosts} == {
        ladder.host: ladder.status for ladder in back.hosts
    }
    assert [item.status for item in forth.across] == [item.status for item in back.across]


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("vllm/vllm-openai", "vllm/vllm-openai:latest"),
        ("docker.io/vllm/vllm-openai:v1", "vllm/vllm-openai:v1"),
        ("docker.io/library/busybox", "busybox:latest"),
        ("registry:5000/a/b", "registry:5000/a/b:latest"),
        ("a/b:v1@sha256:00", "a/b@sha256:00"),
    ],
)
def test_one_image_under_its_names(reference: str, name: str) -> None:
    assert canonical(reference) == name


def test_an_image_is_found_by_tag_digest_and_id() -> None:
    for reference in (
        IMAGE,
        f"docker.io/{IMAGE}",
        "vllm/vllm-openai@sha256:aaaa",
        "sha256:0123456789abcdef",
        "0123456789ab",
    ):
        assert found(judged(host(), asked=wanted(image=reference)), RungName.IMAGE_DISK)[0] is GREEN, (
            reference
        )
        assert (
            rung(judged(host(), asked=wanted(image=reference)), RungName.IMAGE_DISK).reason == "image_present"
        )
