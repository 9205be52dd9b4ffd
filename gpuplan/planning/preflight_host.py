"""The lower rungs of one host: is it reached, does Docker answer, are its GPUs sound and given to containers."""

from collections.abc import Callable, Mapping, Sequence

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Host
from gpuplan.domain.host_facts import Image
from gpuplan.domain.inventory import LOCAL
from gpuplan.planning.preflight_cuda import Cuda, Service, is_data_center, judge_driver
from gpuplan.planning.preflight_images import ARCHITECTURES, image_on
from gpuplan.planning.preflight_measures import GpuTest, GpuTestOutcome, Wanted
from gpuplan.planning.preflight_report import Rung, RungName, Status

DOCKER_CODES = frozenset({"GP621", "GP622", "GP623", "GP624", "GP625", "GP627", "GP628", "GP629"})
GPU_CODES = frozenset({"GP601", "GP602", "GP603", "GP604", "GP605", "GP606", "GP631", "GP635"})
HEALTH_CODES = frozenset({"GP608", "GP609", *(f"GP{code}" for code in range(611, 621))})
TOOLKIT_CODES = frozenset({"GP626"})
INTERFACE_CODES = frozenset({"GP634"})
ACROSS_CODES = frozenset({"GP632", "GP633"})
_PLACED = DOCKER_CODES | GPU_CODES | HEALTH_CODES | TOOLKIT_CODES | INTERFACE_CODES | ACROSS_CODES
NOTHING: Mapping[str, object] = {}
_ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def ssh(host: Host) -> Rung:
    """Green once a probe came back; red with the stage at which it did not."""
    failure = host.failure
    if failure is None:
        reason = "local" if host.address == LOCAL else "reached"
        return Rung(name=RungName.SSH, status=Status.GREEN, reason=reason, figures={"user": host.facts.user})
    figures = {"stage": failure.stage, "detail": failure.detail, "address": host.address or host.name}
    return Rung(name=RungName.SSH, status=Status.RED, reason="unreached", figures=figures)


def probe(host: Host) -> Rung:
    """Whether every part of the probe answered; a state that belongs to no other rung is told here."""
    facts = states(host, lambda fact: fact.code not in _PLACED)
    return of_facts(RungName.PROBE, facts) or Rung(
        name=RungName.PROBE, status=Status.GREEN, reason="complete"
    )


def docker(host: Host) -> Rung:
    """Whether the engine answers to the login as it is, without sudo."""
    facts = states(host, lambda fact: fact.code in DOCKER_CODES)
    engine = host.facts.docker
    told = of_facts(RungName.DOCKER, facts)
    if told is not None and told.status is not Status.GREEN:
        return told
    if engine is None:
        return Rung(name=RungName.DOCKER, status=Status.RED, reason="docker_silent")
    figures = {
        "version": engine.version,
        "transport": engine.transport,
        "storage_driver": engine.storage_driver,
    }
    return Rung(
        name=RungName.DOCKER, status=Status.GREEN, reason="docker_answers", figures=figures, facts=facts
    )


def gpu(host: Host) -> Rung:
    """Whether the vendor's tool answers and lists a GPU that may be used."""
    facts = states(host, lambda fact: fact.code in GPU_CODES)
    usable = [item for item in host.gpus if not item.excluded]
    names = tuple(dict.fromkeys(item.name for item in usable))
    figures = {"count": len(usable), "excluded": len(host.gpus) - len(usable), "names": names}
    if not usable:
        reason = "gpus_excluded" if host.gpus else "no_gpu"
        return Rung(name=RungName.GPU, status=Status.RED, reason=reason, figures=figures, facts=facts)
    told = of_facts(RungName.GPU, facts)
    if told is not None and told.status is not Status.GREEN:
        return told
    return Rung(name=RungName.GPU, status=Status.GREEN, reason="gpus_seen", figures=figures, facts=facts)


def gpu_health(host: Host) -> Rung:
    """The states of the GPUs that may be used; those of excluded ones do not count."""
    if not host.gpus:
        return unjudged(RungName.GPU_HEALTH, "needs_gpu")
    excluded = {item.index for item in host.gpus if item.excluded}
    facts = states(host, lambda fact: fact.code in HEALTH_CODES and fact.subject.get("gpu") not in excluded)
    told = of_facts(RungName.GPU_HEALTH, facts)
    if told is not None and told.status is not Status.GREEN:
        return told
    figures = {"count": len(host.gpus) - len(excluded)}
    return Rung(
        name=RungName.GPU_HEALTH, status=Status.GREEN, reason="gpus_sound", figures=figures, facts=facts
    )


def toolkit(host: Host, test: GpuTest | None, image: str) -> Rung:
    """Whether containers get the GPUs: registered with the engine, or shown by a container that was run."""
    engine = host.facts.docker
    vendors = {item.vendor for item in host.gpus}
    if engine is None:
        return unjudged(RungName.TOOLKIT, "needs_docker")
    if "nvidia" not in vendors:
        return unjudged(RungName.TOOLKIT, "not_nvidia" if vendors else "needs_gpu")
    if test is not None and test.outcome is not GpuTestOutcome.NO_IMAGE:
        return _toolkit_tested(host, test)
    figures = {"runtimes": engine.runtimes, "cdi": len(engine.cdi_devices), "image": image}
    facts = states(host, lambda fact: fact.code in TOOLKIT_CODES)
    if facts or engine.gpu_support is False:
        return Rung(
            name=RungName.TOOLKIT, status=Status.RED, reason="toolkit_missing", figures=figures, facts=facts
        )
    if test is not None:
        return Rung(name=RungName.TOOLKIT, status=Status.GREY, reason="test_needs_image", figures=figures)
    if engine.gpu_support is None:
        return Rung(name=RungName.TOOLKIT, status=Status.AMBER, reason="toolkit_unknown", figures=figures)
    return Rung(name=RungName.TOOLKIT, status=Status.GREEN, reason="toolkit_registered", figures=figures)


def _toolkit_tested(host: Host, test: GpuTest) -> Rung:
    cards = [item for item in host.gpus if item.vendor == "nvidia"]
    known = {item.uuid for item in cards if item.uuid}
    expected = len(known) or len(cards)
    seen = len(known & set(test.uuids)) if known else len(test.uuids)
    figures = {
        "seen": seen,
        "expected": expected,
        "image": test.image,
        "detail": test.detail,
        "seconds": test.seconds,
    }
    match test.outcome:
        case GpuTestOutcome.SEEN if seen == expected:
            status, reason = Status.GREEN, "test_saw_all"
        case GpuTestOutcome.SEEN:
            status, reason = Status.RED, "test_saw_others"
        case GpuTestOutcome.NO_TOOL:
            status, reason = Status.AMBER, "test_without_tool"
        case GpuTestOutcome.TIMED_OUT:
            status, reason = Status.RED, "test_hung"
        case _:
            status, reason = Status.RED, "test_failed"
    return Rung(name=RungName.TOOLKIT, status=status, reason=reason, figures=figures)


def driver(host: Host, cuda: Cuda | None, image: str) -> Rung:
    """Whether the driver is new enough for the CUDA in the image."""
    cards = [item for item in host.gpus if item.backend == "cuda"]
    if not cards:
        return unjudged(RungName.DRIVER, "not_nvidia" if host.gpus else "needs_gpu")
    if cuda is None:
        return unjudged(RungName.DRIVER, "cuda_unknown", {"image": image})
    installed = host.facts.driver_version
    figures = {"driver": installed, "cuda": f"{cuda[0]}.{cuda[1]}", "image": image}
    verdict = (
        judge_driver(installed, cuda, data_center=is_data_center(item.name for item in cards))
        if installed
        else None
    )
    if verdict is None:
        return unjudged(RungName.DRIVER, "driver_unknown", figures)
    status, reason = {
        Service.FULL: (Status.GREEN, "driver_fits"),
        Service.MINOR: (Status.AMBER, "driver_minor"),
        Service.FORWARD: (Status.AMBER, "driver_forward"),
        Service.NONE: (Status.RED, "driver_too_old"),
    }[verdict.service]
    figures |= {"wanted": verdict.wanted, "floor": verdict.floor}
    return Rung(name=RungName.DRIVER, status=status, reason=reason, figures=figures)


def architecture(host: Host, wanted: Wanted) -> Rung:
    """Whether the image present is built for the host's processor."""
    machine = host.facts.architecture or (host.facts.docker.architecture if host.facts.docker else None)
    if machine is None:
        return unjudged(RungName.ARCHITECTURE, "architecture_unknown")
    here = ARCHITECTURES.get(machine.lower(), machine.lower())
    image = image_on(host, wanted.image)
    figures = {"host": here, "image": wanted.image, "built_for": image.architecture if image else None}
    if image is None or not image.architecture:
        if here != "x86_64":
            return Rung(
                name=RungName.ARCHITECTURE, status=Status.AMBER, reason="architecture_unsure", figures=figures
            )
        return unjudged(RungName.ARCHITECTURE, "image_absent", figures)
    built = image.architecture.lower()
    same = ARCHITECTURES.get(built, built) == here
    return Rung(
        name=RungName.ARCHITECTURE,
        status=Status.GREEN if same else Status.RED,
        reason="architecture_same" if same else "architecture_differs",
        figures=figures,
    )


def interface(host: Host, wanted: Wanted) -> Rung:
    """Whether the interface for NCCL, Gloo and Ray is there, up, and has an address."""
    facts = states(host, lambda fact: fact.code in INTERFACE_CODES)
    told = of_facts(RungName.INTERFACE, facts)
    if told is not None:
        return told
    name = host.facts.data_interface
    entry = wanted.entries.get(host.name)
    chosen = next((item for item in host.facts.interfaces if item.name == name), None)
    figures = {
        "interface": name,
        "address": data_address(host, wanted),
        "mtu": chosen.mtu if chosen else None,
        "speed": chosen.speed_bits_per_second if chosen else None,
        "rdma": chosen.rdma_device if chosen else None,
        "chosen_by": "inventory" if entry is not None and entry.interface else "probe",
        "found": tuple(item.name for item in host.facts.interfaces if not item.virtual),
    }
    if name is None or chosen is None:
        return Rung(name=RungName.INTERFACE, status=Status.AMBER, reason="no_interface", figures=figures)
    if not chosen.up:
        return Rung(name=RungName.INTERFACE, status=Status.RED, reason="interface_down", figures=figures)
    if figures["address"] is None:
        return Rung(
            name=RungName.INTERFACE, status=Status.RED, reason="interface_unaddressed", figures=figures
        )
    return Rung(name=RungName.INTERFACE, status=Status.GREEN, reason="interface_up", figures=figures)


def data_address(host: Host, wanted: Wanted) -> str | None:
    """Where other hosts reach this one: the inventory's `data_address`, else the data interface's, IPv4 first."""
    entry = wanted.entries.get(host.name)
    if entry is not None and entry.data_address:
        return entry.data_address
    for item in host.facts.interfaces:
        if item.name == host.facts.data_interface:
            addresses = [text.partition("/")[0] for text in item.addresses]
            return next((text for text in addresses if ":" not in text), addresses[0] if addresses else None)
    return None


def images_of(hosts: Sequence[Host], reference: str) -> tuple[Image, ...]:
    """The wanted image as each host that has it lists it."""
    found = (image_on(host, reference) for host in hosts)
    return tuple(image for image in found if image is not None)


def states(host: Host, chosen: Callable[[Fact], bool]) -> tuple[Fact, ...]:
    """The host's states that concern a rung, the worst first."""
    facts = [fact for fact in host.facts.conditions if chosen(fact)]
    return tuple(sorted(facts, key=lambda fact: _ORDER.index(fact.severity)))


def of_facts(name: RungName, facts: Sequence[Fact]) -> Rung | None:
    """A rung that states of the host decide, by the worst of them; None when there are none."""
    if not facts:
        return None
    status = {Severity.ERROR: Status.RED, Severity.WARNING: Status.AMBER, Severity.INFO: Status.GREEN}
    return Rung(name=name, status=status[facts[0].severity], reason="state", facts=tuple(facts))


def unjudged(name: RungName, reason: str, figures: Mapping[str, object] = NOTHING) -> Rung:
    """A rung that cannot be judged, and why."""
    return Rung(name=name, status=Status.GREY, reason=reason, figures=figures)
