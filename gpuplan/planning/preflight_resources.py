"""The upper rungs of one host: room for the image and the weights, free ports, shared memory."""

import re
from collections.abc import Iterable, Mapping

from gpuplan.domain.fleet import Host
from gpuplan.domain.host_facts import Disk, Image
from gpuplan.planning.preflight_images import image_on
from gpuplan.planning.preflight_measures import HostMeasures, ModelFiles, PortState, Wanted
from gpuplan.planning.preflight_report import Rung, RungName, Status
from gpuplan.units import GIB

IMAGE_SHARE = 2.5
"""Room to pull and unpack an image, in sizes of it."""
ASSUMED_IMAGE_BYTES = 15 * GIB
"""Compressed size of an official image, where no host of the fleet has it: they are 10 to 20 GB."""
ASSUMED_UNPACKED_BYTES = 25 * GIB
"""The least such an image takes once it is unpacked: they grow to 25 to 40 GB."""
NEARLY = 0.95
"""Files smaller than this share of what the model's description promises are worth a look."""
RAY_BLOCK = 100
"""Ports one Ray deployment is laid out in."""
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.(safetensors|bin)")
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


def disk(host: Host, purpose: str) -> Disk | None:
    """The file system under what a purpose names."""
    return next((item for item in host.facts.disks if item.purpose == purpose), None)


def image_room(host: Host, wanted: Wanted, elsewhere: Iterable[Image]) -> Rung:
    """Room in Docker's root for the image, unless it is there already."""
    name = RungName.IMAGE_DISK
    if host.facts.docker is None:
        return Rung(name=name, status=Status.GREY, reason="needs_docker")
    present = image_on(host, wanted.image)
    if present is not None:
        figures = {"image": wanted.image, "bytes": present.size_bytes}
        return Rung(name=name, status=Status.GREEN, reason="image_present", figures=figures)
    root = disk(host, "docker_root")
    least, ample, assumed = _image_need(elsewhere)
    figures = {
        "image": wanted.image,
        "needed_bytes": ample,
        "least_bytes": least,
        "assumed": assumed,
        "free_bytes": root.free_bytes if root else None,
        "path": root.path if root else host.facts.docker.root_dir,
    }
    if root is None:
        return Rung(name=name, status=Status.GREY, reason="disk_unknown", figures=figures)
    if root.free_bytes < least:
        return Rung(name=name, status=Status.RED, reason="image_no_room", figures=figures)
    if root.free_bytes < ample:
        return Rung(name=name, status=Status.AMBER, reason="image_tight", figures=figures)
    return Rung(name=name, status=Status.GREEN, reason="image_room", figures=figures)


def _image_need(elsewhere: Iterable[Image]) -> tuple[int, int, bool]:
    """Bytes without which it cannot be unpacked, bytes that are ample, whether the size is assumed."""
    size = max((image.size_bytes or 0 for image in elsewhere), default=0)
    if size:
        return size, int(size * IMAGE_SHARE), False
    return ASSUMED_UNPACKED_BYTES, int(ASSUMED_IMAGE_BYTES * IMAGE_SHARE), True


def weights(host: Host, wanted: Wanted, measures: HostMeasures, image: Rung) -> Rung:
    """The model's files on the host, or room for them; room the image still takes on the same disk is counted."""
    name = RungName.WEIGHTS
    need = wanted.model
    if need is None:
        return Rung(name=name, status=Status.GREY, reason="no_model")
    files = measures.model
    if files is not None:
        missing = missing_shards(files)
        figures: dict[str, object] = {
            "model": need.name,
            "path": files.path,
            "bytes": weight_bytes(files),
            "files": len(files.files),
            "missing": missing,
        }
        if not missing and figures["bytes"]:
            if need.weights_bytes and weight_bytes(files) < need.weights_bytes * NEARLY:
                figures["needed_bytes"] = need.weights_bytes
                return Rung(name=name, status=Status.AMBER, reason="weights_small", figures=figures)
            return Rung(name=name, status=Status.GREEN, reason="weights_present", figures=figures)
        return Rung(name=name, status=Status.RED, reason="weights_incomplete", figures=figures)
    if not measures.model_looked_for:
        return Rung(
            name=name, status=Status.GREY, reason="weights_not_found_out", figures={"model": need.name}
        )
    return _weights_room(host, wanted, need.name, need.weights_bytes, image)


def _weights_room(host: Host, wanted: Wanted, model: str, size: int | None, image: Rung) -> Rung:
    name = RungName.WEIGHTS
    entry = wanted.entries.get(host.name)
    place = disk(host, "model_dir") or disk(host, "huggingface_cache")
    extra = _image_bytes_on(place, host, image) if place is not None else 0
    figures = {
        "model": model,
        "needed_bytes": size,
        "image_bytes": extra,
        "free_bytes": place.free_bytes if place else None,
        "path": place.path if place else entry.model_dir if entry else None,
    }
    if place is None:
        return Rung(name=name, status=Status.GREY, reason="no_model_dir", figures=figures)
    if size is None:
        return Rung(name=name, status=Status.GREY, reason="weights_unknown", figures=figures)
    if place.free_bytes < size + extra:
        return Rung(name=name, status=Status.RED, reason="weights_no_room", figures=figures)
    return Rung(name=name, status=Status.GREEN, reason="weights_room", figures=figures)


def _image_bytes_on(place: Disk, host: Host, image: Rung) -> int:
    """What the image that is still to be pulled takes at least of the same file system."""
    root = disk(host, "docker_root")
    least = image.figures.get("least_bytes")
    if root is None or root.device is None or root.device != place.device or least is None:
        return 0
    return int(least)


def weight_bytes(files: ModelFiles) -> int:
    """Bytes of the files that hold weights."""
    return sum(size for name, size in files.files if name.endswith(WEIGHT_SUFFIXES))


def missing_shards(files: ModelFiles) -> tuple[str, ...]:
    """Shards that `-00001-of-00017` names promise and that are not there, or are empty."""
    have = {name for name, size in files.files if size > 0}
    found = [(name, _SHARD.fullmatch(name)) for name, _ in files.files]
    series = {(m[1], int(m[3]), m[4]) for _, m in found if m is not None}
    return tuple(
        shard
        for stem, count, kind in sorted(series)
        for number in range(1, count + 1)
        if (shard := f"{stem}-{number:05d}-of-{count:05d}.{kind}") not in have
    )


def ports(host: Host, wanted: Wanted, measures: HostMeasures) -> Rung:
    """Whether the configured ranges are free, as far as a plain bind of every port tells."""
    settings = wanted.settings
    service, ray = _span(settings.service_ports), _span(settings.ray_ports)
    test = measures.ports
    busy: dict[int, PortState] = dict.fromkeys(host.facts.listening_ports, PortState.LISTENING)
    busy |= dict(test.busy) if test is not None else {}
    ours = _held_by_ours(host)
    taken = {port: state for port, state in sorted(busy.items()) if port in service or port in ray}
    foreign = {
        port: state for port, state in taken.items() if port not in ours and state is not PortState.CLOSING
    }
    free_service = len(service) - sum(port in service for port in taken.keys() | (ours & set(service)))
    ephemeral = host.facts.ephemeral_ports
    reserved = test.reserved if test is not None else ()
    overlap = ephemeral is not None and any(
        _given_out(bounds, ephemeral, reserved) for bounds in (settings.service_ports, settings.ray_ports)
    )
    # the SSH server of a host that was reached listens itself: none at all means that the host did not tell
    tool = test.tool if test is not None else None
    told = tool is not None or bool(host.facts.listening_ports)
    figures: dict[str, object] = {
        "service_ports": settings.service_ports,
        "ray_ports": settings.ray_ports,
        "free_service_ports": free_service,
        "taken": tuple((port, state.value) for port, state in foreign.items()),
        "ours": tuple(sorted(port for port in ours if port in service or port in ray)),
        "closing": sum(state is PortState.CLOSING for state in taken.values()),
        "ephemeral_ports": ephemeral,
        "tool": tool,
    }
    reason, status = _ports_verdict(
        free_service, _longest_free(ray, foreign), len(ray), bool(foreign), overlap, tool
    )
    if status is Status.GREEN and not told:
        return Rung(name=RungName.PORTS, status=Status.GREY, reason="ports_unknown", figures=figures)
    return Rung(name=RungName.PORTS, status=status, reason=reason, figures=figures)


def _ports_verdict(
    free_service: int, ray_block: int, ray_size: int, foreign: bool, overlap: bool, tool: object
) -> tuple[str, Status]:
    if free_service <= 0:
        return "no_service_port", Status.RED
    if ray_block < min(RAY_BLOCK, ray_size):
        return "no_ray_block", Status.AMBER
    if foreign:
        return "ports_taken", Status.AMBER
    if overlap:
        return "ports_ephemeral", Status.AMBER
    return ("ports_free" if tool else "ports_not_listening"), Status.GREEN


def _given_out(
    bounds: tuple[int, int], ephemeral: tuple[int, int], reserved: tuple[tuple[int, int], ...]
) -> bool:
    """Whether the kernel gives some port of a range to outgoing connections: in its range and not kept back."""
    return any(
        ephemeral[0] <= port <= ephemeral[1] and not any(first <= port <= last for first, last in reserved)
        for port in _span(bounds)
    )


def _span(bounds: tuple[int, int]) -> range:
    return range(bounds[0], bounds[1] + 1)


def _held_by_ours(host: Host) -> set[int]:
    """Ports our own containers were given, whether they listen yet or not."""
    engine = host.facts.docker
    return {port for container in (engine.containers if engine else ()) for port in container.ports}


def _longest_free(ports_: range, taken: Mapping[int, PortState]) -> int:
    longest = run = 0
    for port in ports_:
        run = 0 if port in taken else run + 1
        longest = max(longest, run)
    return longest


def shared_memory(host: Host, wanted: Wanted) -> Rung:
    """Whether RAM carries the shared memory of a container, and the host's own /dev/shm as much."""
    name = RungName.SHARED_MEMORY
    size = wanted.settings.shm_size_bytes
    shm = disk(host, "shm")
    figures = {
        "shm_size_bytes": size,
        "ram_total_bytes": host.ram_total_bytes,
        "ram_available_bytes": host.ram_available_bytes,
        "host_shm_free_bytes": shm.free_bytes if shm else None,
    }
    if host.ram_total_bytes is not None and host.ram_total_bytes < size:
        return Rung(name=name, status=Status.RED, reason="shm_beyond_ram", figures=figures)
    if host.ram_available_bytes is not None and host.ram_available_bytes < size:
        return Rung(name=name, status=Status.AMBER, reason="shm_beyond_available", figures=figures)
    if shm is not None and shm.free_bytes < size:
        return Rung(name=name, status=Status.AMBER, reason="shm_of_host_small", figures=figures)
    if host.ram_available_bytes is None and shm is None:
        return Rung(name=name, status=Status.GREY, reason="ram_unknown", figures=figures)
    return Rung(name=name, status=Status.GREEN, reason="shm_fits", figures=figures)
