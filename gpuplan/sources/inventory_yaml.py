"""inventory.yaml → `Inventory`: a fault names file, line and key; a value of `env` is never repeated."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuplan.domain.inventory import LOCAL, DeclaredGpus, HostEntry, Inventory, VllmSettings
from gpuplan.domain.tariff import Power, Price, Tariff
from gpuplan.errors import GpuplanError
from gpuplan.sources import device_facts
from gpuplan.sources.documents import Faults, Location, shown

MAX_BYTES = 8 * 1024**2
VARIABLE = "GPUPLAN_INVENTORY"
_INIT = "`gpuplan init HOST…` writes a first one; `gpuplan schema inventory` prints every key there is"
_SCHEMA = "`gpuplan schema inventory` prints every key; inventory.example.yaml explains them"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SSH_PORT = 22
_SETTINGS = ("image", "ray_ports", "service_ports", "registry", "user", "cache_dir", "huggingface_home")
_Keys = Mapping[str, Any]
"""A mapping of the file, read by its table: every key is there."""


def load(path: Path | str) -> Inventory:
    """Read and validate an inventory.

    Raises InventoryError naming file, line and key of the first faults; also for a file above `MAX_BYTES`.
    """
    from gpuplan.sources.inventory_schema import INVENTORY
    from gpuplan.sources.yaml_keys import read_keys, read_mapping, require_none

    faults = Faults(path=str(path), hint=_SCHEMA)
    root = read_mapping(path, faults, key="hosts", limit=MAX_BYTES, missing_hint=_INIT)
    keys = read_keys(root, INVENTORY, faults)
    inventory = _inventory(keys, str(path))
    require_none(root, _contradictions(keys, inventory), faults)
    return inventory


def find_inventory(explicit: Path | str | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The inventory to use: `explicit`, `$GPUPLAN_INVENTORY`, `cwd`'s inventory.yaml, the user's; else None.

    The first two are returned whether or not the file exists, so that reading it says what is wrong.
    """
    if explicit is not None:
        return Path(explicit)
    home = environ.get("HOME", "")
    named = environ.get(VARIABLE, "")
    if named:
        return Path(home + named[1:]) if home and named.startswith("~/") else Path(named)
    return next((path for path in default_places(environ, cwd) if _is_file(path)), None)


def default_places(environ: Mapping[str, str], cwd: Path) -> tuple[Path, ...]:
    """Where an inventory is looked for when none is named, first to last."""
    users = config_directory(environ)
    return (cwd / "inventory.yaml", *((users / "inventory.yaml",) if users is not None else ()))


def config_directory(environ: Mapping[str, str]) -> Path | None:
    """`$XDG_CONFIG_HOME/gpuplan`; None where the environment names neither that nor a home."""
    home = environ.get("HOME", "")
    config = environ.get("XDG_CONFIG_HOME", "")
    if not config.startswith("/"):
        config = f"{home}/.config" if home else ""
    return Path(config, "gpuplan") if config else None


def inventory_schema() -> dict[str, Any]:
    """JSON Schema of an inventory."""
    from gpuplan.sources.inventory_schema import INVENTORY, ROOT
    from gpuplan.sources.key_tables import json_schema

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpuplan inventory",
        **json_schema(ROOT, INVENTORY),
    }


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _inventory(keys: _Keys, path: str) -> Inventory:
    given = {name: value for name, value in keys["vllm"].items() if value is not None}
    vllm = VllmSettings(
        **{name: given[name] for name in _SETTINGS if name in given},
        **({"shm_size_bytes": given["shm_size"]} if "shm_size" in given else {}),
        env=tuple(sorted(given["env"].items())),
    )
    return Inventory(
        path=path, hosts=tuple(_host(host, keys["defaults"]) for host in keys["hosts"]), vllm=vllm
    )


def _host(host: _Keys, defaults: _Keys) -> HostEntry:
    return HostEntry(
        name=host["name"],
        address=host["address"] or host["name"],
        user=host["user"] or defaults["user"],
        port=host["port"] or defaults["port"],
        identity_file=host["identity_file"] or defaults["identity_file"],
        model_dir=host["model_dir"] or defaults["model_dir"],
        interface=host["interface"] or defaults["interface"],
        data_address=host["data_address"],
        jump=host["jump"] or (defaults["jump"] if defaults["jump"] != host["name"] else None),
        labels=tuple(sorted({**defaults["labels"], **host["labels"]}.items())),
        reserve_vram_bytes=_reserved(host["reserve"], defaults["reserve"], "vram"),
        reserve_ram_bytes=_reserved(host["reserve"], defaults["reserve"], "ram"),
        exclude_gpus=tuple(sorted(set(host["exclude_gpus"]))),
        gpus=tuple(_declared(gpus) for gpus in host["gpus"]),
        ram_bytes=host["ram"],
        tariff=_tariff(host, defaults),
    )


def _tariff(host: _Keys, defaults: _Keys) -> Tariff:
    """Prices and power, merged key by key."""
    price, power = (
        {
            key: value
            for keys in (defaults[word], host[word])
            for key, value in keys.items()
            if value is not None
        }
        for word in ("price", "power")
    )
    priced = price.keys() - {"currency"} or "kwh_price" in power
    return Tariff(price=Price(**price) if priced else None, power=Power(**power) if power else None)


def _reserved(host: _Keys, defaults: _Keys, kind: str) -> int:
    own: int | None = host[kind]
    shared: int | None = defaults[kind]
    return own if own is not None else shared or 0


def _declared(gpus: _Keys) -> DeclaredGpus:
    return DeclaredGpus(name=gpus["name"], count=gpus["count"], memory_bytes=gpus["memory"])


def _contradictions(keys: _Keys, inventory: Inventory) -> Iterator[tuple[Location, str]]:
    """What is well formed and still cannot be meant."""
    from gpuplan.sources.inventory_schema import MAX_DECLARED

    yield from _repeated(keys, inventory)
    yield from _currencies(keys, inventory)
    devices: dict[str, str | None] = {}
    for index, (host, entry) in enumerate(zip(keys["hosts"], inventory.hosts, strict=True)):
        at: Location = ("hosts", index)
        if host["jump"] == host["name"]:
            yield (*at, "jump"), "a host cannot be its own jump host"
        yield from _wrong_gpus(host, entry, at, devices)
    total = sum(gpus.count for entry in inventory.hosts for gpus in entry.gpus)
    if total > MAX_DECLARED:
        yield ("hosts",), f"declares {total} GPUs in all; at most {MAX_DECLARED} are read"
    ray, service = inventory.vllm.ray_ports, inventory.vllm.service_ports
    if ray[0] <= service[1] and service[0] <= ray[1]:
        key = "ray_ports" if keys["vllm"]["ray_ports"] is not None else "service_ports"
        yield (
            ("vllm", key),
            f"Ray's ports {ray[0]}-{ray[1]} overlap the service ports {service[0]}-{service[1]}",
        )


def _repeated(keys: _Keys, inventory: Inventory) -> Iterator[tuple[Location, str]]:
    names: dict[str, int] = {}
    machines: dict[tuple[str, int, str | None], int] = {}
    for index, entry in enumerate(inventory.hosts):
        first = names.setdefault(entry.name.casefold(), index)
        if first != index:
            yield ("hosts", index, "name"), f"{entry.name!r} is already the name of hosts[{first}]"
            continue
        address = entry.address.casefold().rstrip(".")
        local = address == LOCAL
        machine = (
            _LOOPBACK[0] if address in _LOOPBACK else address,
            0 if local else entry.port or _SSH_PORT,
            None if local else entry.jump,
        )
        first = machines.setdefault(machine, index)
        if first != index:
            key = "address" if keys["hosts"][index]["address"] is not None else "name"
            other = inventory.hosts[first].name
            yield ("hosts", index, key), f"is the same machine as hosts[{first}] ({other}): {entry.address}"


def _currencies(keys: _Keys, inventory: Inventory) -> Iterator[tuple[Location, str]]:
    """The first price without a currency, or in another one than the first: nothing is converted."""
    first: HostEntry | None = None
    for index, entry in enumerate(inventory.hosts):
        price = entry.tariff.price
        if price is None:
            continue
        if price.currency is None:
            yield _amount(keys, index), "has no currency: add for example price: {currency: USD} to defaults"
            return
        first = first or entry
        if first.tariff.price is not None and price.currency != first.tariff.price.currency:
            at: Location = ("hosts", index, "price", "currency")
            other = f"{first.name} is priced in {first.tariff.price.currency}"
            yield at, f"{price.currency}, but {other}: nothing is converted, write all prices in one currency"
            return


def _amount(keys: _Keys, index: int) -> Location:
    """Where the first amount of money of a host is written: at the host, else in the defaults."""
    amounts = (("price", "gpu_hour"), ("price", "host_hour"), ("power", "kwh_price"))
    places: tuple[tuple[Location, _Keys], ...] = (
        (("hosts", index), keys["hosts"][index]),
        (("defaults",), keys["defaults"]),
    )
    return next(
        (*at, *amount) for at, held in places for amount in amounts if held[amount[0]][amount[1]] is not None
    )


def _wrong_gpus(
    host: _Keys, entry: HostEntry, at: Location, devices: dict[str, str | None]
) -> Iterator[tuple[Location, str]]:
    from gpuplan.sources.inventory_schema import MAX_GPUS

    for number, gpus in enumerate(entry.gpus):
        if gpus.memory_bytes is None and (fault := _unknown_device(gpus.name, devices)) is not None:
            yield (*at, "gpus", number, "name"), fault
    count = sum(gpus.count for gpus in entry.gpus)
    if count > MAX_GPUS:
        yield (*at, "gpus"), f"declares {count} GPUs; one host has at most {MAX_GPUS}"
    for number, index in enumerate(host["exclude_gpus"]):
        if entry.gpus and index >= count:
            last = f"0-{count - 1}" if count > 1 else "0"
            yield (*at, "exclude_gpus", number), f"GPU {index} does not exist: the declared GPUs are {last}"
        elif index in host["exclude_gpus"][:number]:
            yield (*at, "exclude_gpus", number), f"GPU {index} is listed twice"


def _unknown_device(name: str, devices: dict[str, str | None]) -> str | None:
    """Why a device name is not usable without `memory`, None when it is; `devices` keeps the answers."""
    if name not in devices:
        try:
            device_facts.of_catalogue(name)
            devices[name] = None
        except GpuplanError as error:
            way_out = "give its size as 'memory: 80GiB', or pick a name of `gpuplan gpus`"
            devices[name] = (
                f"{shown(error.message) if len(error.message) > 200 else error.message}; {way_out}"
            )
    return devices[name]
