"""Words about what a host has room for: image, weights, ports, shared memory, and its data interface."""

from collections.abc import Callable, Mapping
from typing import Any

from gpuplan.present.numbers import count, gib, gigabits, listed
from gpuplan.present.words import Words
from gpuplan.units import plural

Figures = Mapping[str, Any]


def _plain(headline: str, fix: str | None = None) -> Callable[[Figures], Words]:
    return lambda _: (headline, (), fix)


def _image_absent(figures: Figures) -> Words:
    return (f"{figures['image']} is not on the host yet", (), None)


def _image_present(figures: Figures) -> Words:
    size = f" ({gib(figures['bytes'])})" if figures.get("bytes") else ""
    return (f"{figures['image']} is there{size}", (), None)


def _image_basis(figures: Figures) -> str:
    if figures["assumed"]:
        return "its size is assumed: official images are 10 to 20 GB to pull and 25 to 40 GB unpacked"
    return f"it takes {gib(figures['least_bytes'])} unpacked, and 2.5 times that while it is pulled"


def _image_room(figures: Figures) -> Words:
    text = f"{gib(figures['free_bytes'])} free in {figures['path']} for the image ({gib(figures['needed_bytes'])})"
    return (text, (), None)


def _image_short(figures: Figures) -> Words:
    return (
        (
            f"{gib(figures['free_bytes'])} free in {figures['path']}; pulling the image takes "
            f"{gib(figures['needed_bytes'])}"
        ),
        (_image_basis(figures),),
        "make room: docker system df, docker image prune -a; or move Docker's data-root to a larger disk",
    )


def _weights_present(figures: Figures) -> Words:
    return (
        f"{gib(figures['bytes'])} in {plural(figures['files'], 'file')} in {figures['path']}",
        (),
        None,
    )


def _weights_incomplete(figures: Figures) -> Words:
    missing = figures["missing"]
    what = f"{plural(len(missing), 'shard')} missing: {listed(missing)}" if missing else "no weights in it"
    return (f"{figures['path']}: {what}", (), _fetch(figures))


def _weights_small(figures: Figures) -> Words:
    return (
        (
            f"{figures['path']} holds {gib(figures['bytes'])} of weights; {figures['model']} has "
            f"{gib(figures['needed_bytes'])}"
        ),
        (),
        _fetch(figures),
    )


def _fetch(figures: Figures) -> str:
    return f"download it again: hf download {figures['model']} --local-dir {figures['path']}"


def _weights_room(figures: Figures) -> Words:
    return (
        f"{gib(figures['free_bytes'])} free in {figures['path']} for the weights ({gib(figures['needed_bytes'])})",
        (),
        None,
    )


def _weights_no_room(figures: Figures) -> Words:
    also = figures.get("image_bytes")
    because = (f"the image that is still to be pulled takes {gib(also)} of the same disk",) if also else ()
    return (
        f"{gib(figures['free_bytes'])} free in {figures['path']}; the weights take {gib(figures['needed_bytes'])}",
        because,
        "make room, or name a directory on a larger disk: `model_dir:` in the inventory",
    )


def _range(ports: tuple[int, int]) -> str:
    return f"{ports[0]}-{ports[1]}"


def _ports_held(figures: Figures) -> tuple[str, ...]:
    lines = []
    if figures["taken"]:
        shown = listed([f"{port} ({state})" for port, state in figures["taken"]], 5)
        lines.append(f"taken: {shown}")
    if figures["ours"]:
        lines.append(
            f"held by gpuplan's own containers: {listed([str(port) for port in figures['ours']], 5)}"
        )
    return tuple(lines)


def _ports_free(figures: Figures) -> Words:
    ours = f", {len(figures['ours'])} in use by our own containers" if figures["ours"] else ""
    return (f"{_range(figures['service_ports'])} and {_range(figures['ray_ports'])} are free{ours}", (), None)


def _ports_not_listening(figures: Figures) -> Words:
    return (
        f"nobody listens in {_range(figures['service_ports'])} and {_range(figures['ray_ports'])}",
        ("no python3 or perl to bind them: what is bound and does not listen yet is not seen",),
        None,
    )


def _ports_unknown(figures: Figures) -> Words:
    return (
        f"what is taken of {_range(figures['service_ports'])} and {_range(figures['ray_ports'])} is not known",
        ("no python3 or perl to bind them, and the host did not tell who listens",),
        "install iproute2 (ss) or python3 on the host",
    )


def _ports_taken(figures: Figures) -> Words:
    seen = [port for port, state in figures["taken"] if state != "bound"]
    look = (
        f"sudo ss -tanp 'sport = :{seen[0]}'"
        if seen
        else "docker ps (a server that loads binds before it listens)"
    )
    return (
        (
            f"{plural(len(figures['taken']), 'port')} of the configured ranges taken; "
            f"{count(figures['free_service_ports'])} of {_range(figures['service_ports'])} left"
        ),
        _ports_held(figures),
        f"see who: {look}; or choose other ranges: `vllm: service_ports:`, `ray_ports:`",
    )


def _no_service_port(figures: Figures) -> Words:
    return (
        f"no port of {_range(figures['service_ports'])} is free",
        _ports_held(figures),
        "choose another range: `vllm: service_ports:` in the inventory",
    )


def _no_ray_block(figures: Figures) -> Words:
    return (
        f"no 100 ports in a row are free in {_range(figures['ray_ports'])}, which a Ray deployment needs",
        _ports_held(figures),
        "choose another range: `vllm: ray_ports:` in the inventory",
    )


def _ports_ephemeral(figures: Figures) -> Words:
    first, last = figures["ephemeral_ports"]
    return (
        "the configured ports are free, but the kernel gives some of them to outgoing connections",
        (f"net.ipv4.ip_local_port_range is {first}-{last}",),
        (
            "choose ranges outside it, or keep them back: sudo sysctl net.ipv4.ip_local_reserved_ports="
            f"{_range(figures['service_ports'])},{_range(figures['ray_ports'])}"
        ),
    )


def _shm_fits(figures: Figures) -> Words:
    return (f"{gib(figures['shm_size_bytes'])} of shared memory per container fit into RAM", (), None)


def _shm_beyond(figures: Figures) -> Words:
    total, available = figures["ram_total_bytes"], figures["ram_available_bytes"]
    have = f"{gib(available)} of {gib(total)} RAM available" if available is not None else f"{gib(total)} RAM"
    return (
        f"{gib(figures['shm_size_bytes'])} of shared memory per container, {have}",
        (),
        "lower `vllm: shm_size:` in the inventory, or free memory on the host",
    )


def _shm_of_host(figures: Figures) -> Words:
    return (
        f"/dev/shm of the host has {gib(figures['host_shm_free_bytes'])} free, {gib(figures['shm_size_bytes'])} are configured",
        ("it matters only to containers that share the host's (ipc: host)",),
        f"sudo mount -o remount,size={figures['shm_size_bytes']} /dev/shm",
    )


def _interface_up(figures: Figures) -> Words:
    words = [f"{figures['interface']} {figures['address']}"]
    if figures.get("speed"):
        words.append(gigabits(figures["speed"]))
    if figures.get("rdma"):
        words.append(f"RDMA {figures['rdma']}")
    words.append(f"chosen by the {figures['chosen_by']}")
    return (", ".join(words), (), None)


def _no_interface(figures: Figures) -> Words:
    return (
        "no interface for NCCL, Gloo and Ray was chosen",
        (f"interfaces: {listed([str(name) for name in figures['found']], 5)}",) if figures["found"] else (),
        "name one: `interface:` of the host in the inventory",
    )


def _interface_down(figures: Figures) -> Words:
    return (f"{figures['interface']} is down", (), f"sudo ip link set {figures['interface']} up")


def _interface_unaddressed(figures: Figures) -> Words:
    return (
        f"{figures['interface']} has no address",
        (),
        "give it one, or name another: `interface:` or `data_address:` of the host in the inventory",
    )


WORDS: Mapping[str, Callable[[Figures], Words]] = {
    "image_absent": _image_absent,
    "image_present": _image_present,
    "image_room": _image_room,
    "image_tight": _image_short,
    "image_no_room": _image_short,
    "disk_unknown": _plain("the disk of Docker's data is not known"),
    "no_model": _plain("no model was named", "gpuplan check --model MODEL"),
    "no_model_dir": _plain("where models are kept is not known", "name it: `model_dir:` in the inventory"),
    "weights_not_found_out": _plain("the host did not answer whether it has the model's files"),
    "weights_unknown": _plain("the size of the weights is not known"),
    "weights_present": _weights_present,
    "weights_incomplete": _weights_incomplete,
    "weights_small": _weights_small,
    "weights_room": _weights_room,
    "weights_no_room": _weights_no_room,
    "ports_free": _ports_free,
    "ports_not_listening": _ports_not_listening,
    "ports_unknown": _ports_unknown,
    "ports_taken": _ports_taken,
    "ports_ephemeral": _ports_ephemeral,
    "no_service_port": _no_service_port,
    "no_ray_block": _no_ray_block,
    "shm_fits": _shm_fits,
    "shm_beyond_ram": _shm_beyond,
    "shm_beyond_available": _shm_beyond,
    "shm_of_host_small": _shm_of_host,
    "ram_unknown": _plain("the host's memory is not known"),
    "interface_up": _interface_up,
    "no_interface": _no_interface,
    "interface_down": _interface_down,
    "interface_unaddressed": _interface_unaddressed,
}
