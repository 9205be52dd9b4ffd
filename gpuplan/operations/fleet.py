"""Which fleet a command works on: a snapshot, the hosts of an inventory as they are probed, or the hardware it declares."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuplan.domain.fleet import Basis, Fleet, Gpu, Host, HostFailure, HostStatus
from gpuplan.domain.inventory import LOCAL, DeclaredGpus, HostEntry, Inventory
from gpuplan.errors import NoHostError, UsageError
from gpuplan.operations.entries import with_settings
from gpuplan.sources import device_facts, inventory_yaml
from gpuplan.sources.device_facts import DeviceFacts
from gpuplan.sources.documents import did_you_mean, shown

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpuplan.operations.probe import OnProgress, ProbeOptions

DECLARED_NOTE = "the hardware is declared in the inventory, not probed: all of its memory is taken to be free"
THIS_MACHINE = Inventory(path="", hosts=(HostEntry(name=LOCAL, address=LOCAL),))
"""What is planned on when there is no inventory."""
DECLARE = "declare the hardware in the inventory, for example gpus: {name: H100-80GB, count: 8}"
MEND = "`gpuplan check` says what to mend on each; `gpuplan plan --no-probe` plans on the hardware the inventory declares"
GPU_TOOL_FAILED = frozenset({"GP601", "GP602", "GP603", "GP604", "GP605", "GP606", "GP608"})
"""States in which a host may have GPUs that its tools do not show."""
_MAX_NAMED = 5

Label = tuple[str, str]
_Facts = dict[tuple[str, int | None], DeviceFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """The options every planning command shares, as they were given."""

    environ: Mapping[str, str]
    cwd: Path
    inventory: Path | None = None
    snapshot: Path | None = None
    no_probe: bool = False
    hosts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """`K=V` each."""
    reach: "Callable[[], ProbeOptions] | None" = None
    """How hosts are reached, asked for when some are; None: they never are."""
    watch: "Callable[[int], AbstractContextManager[OnProgress]] | None" = None
    """Given the number of hosts: who is told of a probe's progress."""

    @property
    def probes(self) -> bool:
        """Whether hosts are reached."""
        return self.snapshot is None and not self.no_probe and self.reach is not None


def read_fleet(options: FleetOptions, inventory: Inventory | None = None) -> Fleet:
    """The fleet to plan on; it has at least one usable GPU. An `inventory` already read is not read again.

    Raises NoHostError when no usable GPU is left, and what `see_fleet` raises.
    """
    fleet = see_fleet(options, inventory)
    try:
        require_usable(fleet)
    except NoHostError as error:
        if options.probes and (inventory or load_inventory(options)) is None:
            raise _no_inventory(options, error) from error
        raise
    return fleet


def see_fleet(options: FleetOptions, inventory: Inventory | None = None) -> Fleet:
    """The fleet as it is, usable or not: from the snapshot, declared (`no_probe`), or probed.

    Raises InventoryError for a wrong file, UsageError for a host or label that is not there.
    """
    if options.snapshot is not None:
        return _narrowed(_snapshot(options.snapshot, options, inventory), options)
    inventory = inventory or load_inventory(options)
    if not options.probes or options.reach is None:
        if inventory is None:
            raise _no_inventory(options)
        return _narrowed(declared(inventory), options)
    return _probed(inventory or THIS_MACHINE, options, options.reach())


def _narrowed(fleet: Fleet, options: FleetOptions) -> Fleet:
    return narrow(fleet, hosts=options.hosts, labels=tuple(parse_label(text) for text in options.labels))


def load_inventory(options: FleetOptions) -> Inventory | None:
    """The inventory the options name or the search finds; None when there is none."""
    path = inventory_yaml.find_inventory(options.inventory, options.environ, options.cwd)
    return inventory_yaml.load(path) if path is not None else None


def declared(inventory: Inventory) -> Fleet:
    """The hardware an inventory declares, all of its memory free.

    A host that declares none is kept as failed. Facts come from the accelerator catalogue, where `memory:` does
    not say otherwise.
    """
    facts: _Facts = {}
    hosts = tuple(_declared_host(entry, facts) for entry in inventory.hosts)
    return Fleet(hosts=hosts, basis=Basis.ASSUMED, notes=(DECLARED_NOTE,))


def narrow(fleet: Fleet, *, hosts: Sequence[str] = (), labels: Sequence[Label] = ()) -> Fleet:
    """The hosts among `hosts`, if any are named, that carry every label.

    Raises UsageError with a near miss for a name or label no host has, NoHostError when no host has them all.
    """
    known = {host.name for host in fleet.hosts}
    for name in hosts:
        if name not in known:
            near = did_you_mean(name, known)
            raise UsageError(
                f"--host {shown(name)}: there is no such host{near}", hint=f"hosts: {_listed(known)}"
            )
    for label in labels:
        _require_label(fleet, label)
    kept = tuple(
        host
        for host in fleet.hosts
        if (not hosts or host.name in hosts) and all(label in host.labels for label in labels)
    )
    if not kept and fleet.hosts:
        filters = [f"--host {shown(name)}" for name in hosts]
        filters += [f"--label {shown(key)}={shown(value)}" for key, value in labels]
        raise NoHostError(
            f"no host matches {' '.join(filters)} together", hint="leave one of the filters out"
        )
    return replace(fleet, hosts=kept)


def parse_label(text: str) -> Label:
    """Read the `K=V` of `--label`; UsageError when it is not one."""
    key, sign, value = text.partition("=")
    if not (sign and key.strip() and value.strip()):
        raise UsageError(f"--label {shown(text)}: is not K=V", hint="write for example --label zone=a")
    return key.strip(), value.strip()


def usable(host: Host, gpu: Gpu) -> bool:
    """Whether a plan may use a GPU at all: host seen, memory known, not excluded."""
    return (
        host.status is HostStatus.OK
        and gpu.total_bytes is not None
        and gpu.total_bytes > 0
        and not gpu.excluded
    )


def require_usable(fleet: Fleet) -> None:
    """Raise NoHostError, with what is wrong with each host, unless some GPU of the fleet is usable."""
    if any(usable(host, gpu) for host in fleet.hosts for gpu in host.gpus):
        return
    if not fleet.hosts:
        raise NoHostError(
            "the fleet has no hosts",
            hint="name one under hosts: in the inventory, with its gpus: {name: H100-80GB, count: 8}",
        )
    reasons = [f"{shown(host.name)}: {_why_unusable(host)}" for host in fleet.hosts[:_MAX_NAMED]]
    rest = len(fleet.hosts) - _MAX_NAMED
    if rest > 0:
        reasons.append(f"and {rest} more hosts")
    raise NoHostError(
        "no host has a usable GPU: " + "; ".join(reasons),
        hint=MEND if fleet.basis is Basis.MEASURED else DECLARE,
    )


def _snapshot(path: Path, options: FleetOptions, inventory: Inventory | None) -> Fleet:
    from gpuplan.sources import snapshot_json

    fleet = snapshot_json.load(path)
    if options.inventory is None:
        return fleet
    return with_settings(fleet, inventory or inventory_yaml.load(options.inventory))


def _probed(inventory: Inventory, options: FleetOptions, reach: "ProbeOptions") -> Fleet:
    from gpuplan.operations.probe import probe_fleet

    names = meant_hosts(inventory, options)
    if options.watch is None:
        return probe_fleet(inventory, reach, only=names)
    with options.watch(len(names)) as progress:
        return probe_fleet(inventory, reach, progress, only=names)


def meant_hosts(inventory: Inventory, options: FleetOptions) -> frozenset[str]:
    """Names of the hosts the options mean: all, where they name none."""
    return frozenset(host.name for host in _narrowed(_named(inventory), options).hosts)


def _named(inventory: Inventory) -> Fleet:
    """The hosts of an inventory by name and label alone."""
    return Fleet(hosts=tuple(Host(name=entry.name, labels=entry.labels) for entry in inventory.hosts))


def _no_inventory(options: FleetOptions, here: NoHostError | None = None) -> NoHostError:
    """There is no inventory, and `here`, this machine, does not do either."""
    places = ", ".join(str(path) for path in inventory_yaml.default_places(options.environ, options.cwd))
    also = f", and this machine will not do: {here.message}" if here is not None else ""
    return NoHostError(
        f"there is no inventory: looked for ${inventory_yaml.VARIABLE}, {places}{also}",
        hint="`gpuplan init HOST…` writes one, or name one with -i FILE; `gpuplan estimate MODEL --gpu NAME` needs none",
    )


def _declared_host(entry: HostEntry, facts: _Facts) -> Host:
    failure = None
    if not entry.gpus:
        detail = "no gpus declared in the inventory; add for example gpus: {name: H100-80GB, count: 8}"
        failure = HostFailure(stage="declare", detail=detail)
    gpus = _declared_gpus(entry, facts)
    links = {_facts(declaration, facts).link for declaration in entry.gpus}
    return Host(
        name=entry.name,
        address=entry.address,
        status=HostStatus.OK if entry.gpus else HostStatus.FAILED,
        failure=failure,
        labels=entry.labels,
        gpus=gpus,
        ram_total_bytes=entry.ram_bytes,
        ram_available_bytes=entry.ram_bytes,
        ram_reserved_bytes=entry.reserve_ram_bytes,
        tariff=entry.tariff,
        link=links.pop() if len(links) == 1 else None,
    )


def _facts(declaration: DeclaredGpus, known: _Facts) -> DeviceFacts:
    """Facts of declared hardware; `known` keeps the answers."""
    key = declaration.name, declaration.memory_bytes
    if key not in known:
        size = declaration.memory_bytes
        name = declaration.name
        known[key] = device_facts.of_catalogue(name) if size is None else device_facts.of_device(name, size)
    return known[key]


def _declared_gpus(entry: HostEntry, facts: _Facts) -> tuple[Gpu, ...]:
    gpus: list[Gpu] = []
    for declaration in entry.gpus:
        device = _facts(declaration, facts)
        for index in range(len(gpus), len(gpus) + declaration.count):
            gpu = Gpu(
                index=index,
                name=device.name,
                vendor=device.vendor,
                backend=device.backend,
                compute_capability=device.compute_capability,
                total_bytes=device.total_bytes,
                free_bytes=device.total_bytes,
                bandwidth_bytes_per_second=device.bandwidth_bytes_per_second,
                unified=device.unified,
                reserved_bytes=entry.reserve_vram_bytes,
                excluded=index in entry.exclude_gpus,
            )
            gpus.append(gpu)
    return tuple(gpus)


def _require_label(fleet: Fleet, label: Label) -> None:
    key, value = label
    values = {have for host in fleet.hosts for name, have in host.labels if name == key}
    given = f"--label {shown(key)}={shown(value)}"
    if not values:
        keys = {name for host in fleet.hosts for name, _ in host.labels}
        hint = (
            f"labels: {_listed(keys)}"
            if keys
            else "give hosts labels in the inventory, for example labels: {zone: a}"
        )
        raise UsageError(f"{given}: no host has the label {shown(key)!r}{did_you_mean(key, keys)}", hint=hint)
    if value not in values:
        near = did_you_mean(value, values)
        message = f"{given}: no host has that value of {shown(key)!r}{near}"
        raise UsageError(message, hint=f"values of {shown(key)}: {_listed(values)}")


def _listed(words: Iterable[str]) -> str:
    ordered = sorted(words)
    rest = len(ordered) - 2 * _MAX_NAMED
    named = ", ".join(shown(word) for word in ordered[: 2 * _MAX_NAMED])
    return f"{named} and {rest} more" if rest > 0 else named


def _why_unusable(host: Host) -> str:
    if host.failure is not None:
        return f"{host.status.value} ({shown(host.failure.stage)}: {host.failure.detail})"
    if host.status is not HostStatus.OK:
        return host.status.value
    if not host.gpus:
        codes = [fact.code for fact in host.facts.conditions if fact.code in GPU_TOOL_FAILED]
        return f"no GPU is seen [{', '.join(codes)}]" if codes else "it has no GPU"
    excluded = sum(gpu.excluded for gpu in host.gpus)
    if excluded == len(host.gpus):
        return f"exclude_gpus leaves out all {excluded} GPUs"
    left = len(host.gpus) - excluded
    return f"the memory of its {left} GPUs is unknown" if left > 1 else "the memory of its GPU is unknown"
