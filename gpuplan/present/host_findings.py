"""Words about the state of a host, its GPUs and its Docker engine (GP601 to GP637): what is wrong, and the command that helps.

The figures are those the probes give; one that is missing leaves a gap in the sentence, never a finding unsaid.
"""

from gpuplan.present.numbers import count, gib
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural

JOURNAL = "sudo dmesg -T | grep -iE 'nvrm|xid'"
TOOLKIT = (
    "install the package nvidia-container-toolkit, then sudo nvidia-ctk runtime configure --runtime=docker && "
    "sudo systemctl restart docker"
)


def _host(subject: Given) -> str:
    return str(subject.get("host") or "this host")


def _gpu(subject: Given) -> str:
    """`h1 GPU 3`, `h1 GPU at 0000:17:00.0`."""
    if subject.get("gpu") is not None:
        return f"{_host(subject)} GPU {subject['gpu']}"
    if subject.get("pci"):
        return f"{_host(subject)} GPU at {subject['pci']}"
    return _host(subject)


def _said(value: object, otherwise: str = "unknown") -> str:
    """A figure as text: lists with commas, nothing as `otherwise`."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(str(item) for item in value) or otherwise
    return otherwise if value is None or value == "" else str(value)


def _detail(figures: Given) -> tuple[str, ...]:
    """What the host itself said."""
    detail = figures.get("detail")
    return (f"the host said: {detail}",) if detail else ()


def _tool(figures: Given) -> str:
    return _said(figures.get("tool"), "the GPU tool")


def _index(subject: Given) -> str:
    """How the GPU is named to `nvidia-smi -i`."""
    known = subject.get("gpu") if subject.get("gpu") is not None else subject.get("pci")
    return "INDEX" if known is None else str(known)


def _no_tool(subject: Given, figures: Given) -> Words:
    devices = figures.get("devices")
    found = plural(devices, "NVIDIA device") if isinstance(devices, int) else f"NVIDIA ({_said(devices)})"
    return told(
        f"{_host(subject)}: {found} on the PCI bus, but nvidia-smi is missing",
        ("without the driver's tool no GPU of this host can be seen or used",),
        "install the NVIDIA driver with its utilities (Ubuntu: sudo ubuntu-drivers install --gpgpu), then reboot",
    )


def _no_driver(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: the NVIDIA driver does not answer",
        _detail(figures),
        "sudo modprobe nvidia; if that fails, the module was not built for the running kernel: dkms status, "
        "reinstall the driver and reboot",
    )


def _mismatch(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: the loaded NVIDIA module and the installed library are of different versions",
        (*_detail(figures), "the driver was updated while its old module stayed loaded"),
        "reboot; or, when nothing uses the GPUs: sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && "
        "sudo modprobe nvidia",
    )


def _hung(subject: Given, figures: Given) -> Words:
    seconds = figures.get("seconds")
    waited = f" within {seconds:g} s" if isinstance(seconds, (int, float)) else ""
    return told(
        f"{_host(subject)}: {_tool(figures)} gave no answer{waited}",
        ("a driver that hangs does not recover by itself, and programs that use its GPUs hang with it",),
        f"look for the cause with {JOURNAL}; a reboot is the usual way out",
    )


def _denied(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: the login may not use {_tool(figures)}",
        _detail(figures),
        "ls -l /dev/nvidia* /dev/kfd /dev/dri/renderD* shows who may; for AMD: sudo usermod -aG video,render USER, "
        "then log in again",
    )


def _unreadable(subject: Given, figures: Given) -> Words:
    code = figures.get("exit_code")
    status = "" if code is None else f" (exit status {code})"
    return told(
        f"{_host(subject)}: {_tool(figures)} failed, or its output cannot be read{status}",
        _detail(figures),
        f"run {_tool(figures)} on the host and compare; the driver's own words: {JOURNAL}",
    )


def _lost(subject: Given, figures: Given) -> Words:
    return told(
        f"{_gpu(subject)}: lost, or needs a reset; not used",
        _detail(figures),
        f"when nothing runs on it: sudo nvidia-smi --gpu-reset -i {_index(subject)}; if that fails, reboot; if it comes "
        "back, the card or its slot is faulty",
    )


def _no_memory(subject: Given, figures: Given) -> Words:
    return told(
        f"{_gpu(subject)}: how much memory it has is unknown",
        _detail(figures),
        "a GPU of unknown size is not used; nvidia-smi -q -d MEMORY on the host shows what the driver says",
    )


def _ecc(subject: Given, figures: Given) -> Words:
    return told(
        f"{_gpu(subject)}: {plural(int(figures.get('count') or 0), 'uncorrectable memory error')} since the last reset",
        ("each may have ended a program or changed its results",),
        f"watch it: nvidia-smi -q -d ECC -i {_index(subject)}; if the count grows, keep the GPU out (exclude_gpus) and "
        "have it replaced",
    )


def _remapping(subject: Given, figures: Given) -> Words:
    return told(
        f"{_gpu(subject)}: faulty memory is to be taken out of use, and is not yet, or could not be",
        _detail(figures),
        f"pending: when nothing runs on it, sudo nvidia-smi --gpu-reset -i {_index(subject)}, or reboot; failed: keep it "
        "out (exclude_gpus) and have it replaced (RMA)",
    )


def _xid(subject: Given, figures: Given) -> Words:
    times = figures.get("count")
    often = f" {count(times)} times" if isinstance(times, int) and times > 1 else ""
    return told(
        f"{_gpu(subject)}: the driver logged Xid {_said(figures.get('xid'))}{often}",
        _detail(figures),
        f"{JOURNAL} shows when; 13, 31 and 43 point to a program, 48, 63, 64, 79, 94 and 95 to the card "
        "(https://docs.nvidia.com/deploy/xid-errors)",
    )


def _throttled(subject: Given, figures: Given) -> Words:
    return told(
        f"{_gpu(subject)}: runs slower than it could ({_said(figures.get('reasons'))})",
        ("every rank of a placement waits for its slowest GPU",),
        f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {_index(subject)} shows what holds it back: cooling, power "
        "cables or a power limit",
    )


def _no_slices(subject: Given, _figures: Given) -> Words:
    return told(
        f"{_gpu(subject)}: MIG is on, but the card has no slices; not used",
        ("a card in MIG mode runs nothing outside a slice",),
        f"make slices: sudo nvidia-smi mig -i {_index(subject)} -cgi PROFILE -C (profiles: nvidia-smi mig -lgip); or turn "
        f"MIG off: sudo nvidia-smi -i {_index(subject)} -mig 0",
    )


def _fabric(subject: Given, figures: Given) -> Words:
    return told(
        f"{_gpu(subject)}: the NVSwitch fabric is not ready (state {_said(figures.get('state'))})",
        ("until it is, CUDA starts on none of the GPUs behind the switch (error 802)",),
        "sudo systemctl enable --now nvidia-fabricmanager; its version must be the driver's: "
        "journalctl -u nvidia-fabricmanager",
    )


def _compute_mode(subject: Given, figures: Given) -> Words:
    return told(
        f"{_gpu(subject)}: compute mode is {_said(figures.get('mode'))}",
        ("in exclusive mode a second process is refused, in prohibited mode every process",),
        f"sudo nvidia-smi -i {_index(subject)} -c DEFAULT",
    )


def _display(subject: Given, _figures: Given) -> Words:
    return told(
        f"{_gpu(subject)}: a display is attached",
        ("the desktop holds some of the memory, and more when somebody works on it",),
        "keep some back in the inventory: reserve: {vram: 1GiB}",
    )


def _unified(subject: Given, figures: Given) -> Words:
    total, available = figures.get("total_bytes"), figures.get("available_bytes")
    return told(
        f"{_gpu(subject)}: memory is shared with the host, {gib(available)} of {gib(total)} available now",
        ("the figures are those of /proc/meminfo: the driver gives none of its own",),
        "keep reserve: {ram: 12GiB} or more in the inventory, and -- --gpu-memory-utilization at 0.75 or less",
    )


def _windows(subject: Given, _figures: Given) -> Words:
    return told(
        f"{_gpu(subject)}: Windows gives out its memory (WSL)",
        (
            "the engine finds about 1 GiB and 2 % of the card less than its total, whatever nvidia-smi calls free",
        ),
        "close programs that draw on Windows; -- --gpu-memory-utilization 0.9 or less",
    )


def _vgpu(subject: Given, figures: Given) -> Words:
    return told(
        f"{_gpu(subject)}: a virtual GPU, its memory is the part the hypervisor gives",
        _detail(figures),
        None,
    )


def _no_docker(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: Docker is not installed, or has no socket",
        _detail(figures),
        "install Docker Engine (https://docs.docker.com/engine/install), then sudo systemctl enable --now docker",
    )


def _docker_denied(subject: Given, figures: Given) -> Words:
    user = _said(figures.get("user"), "the login")
    return told(
        f"{_host(subject)}: {user} may not use the Docker socket {_said(figures.get('path'), '/var/run/docker.sock')}",
        (f"groups of {user}: {_said(figures.get('groups'))}",),
        f"sudo usermod -aG docker {_said(figures.get('user'), 'USER')}, then log in again (members of that group are "
        "as powerful as root)",
    )


def _docker_down(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: the Docker daemon is not running",
        _detail(figures),
        "sudo systemctl start docker; why it stopped: journalctl -u docker -n 50",
    )


def _dial_stdio(subject: Given, _figures: Given) -> Words:
    return told(
        f"{_host(subject)}: the SSH server forbids forwarding sockets, so Docker is reached through its own client",
        ("`docker system dial-stdio` on the host does the same job",),
        None,
    )


def _no_way_to_docker(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: no way to the Docker engine: the SSH server forbids forwarding, and there is no docker client",
        _detail(figures),
        "install the package docker-ce-cli there; or set AllowStreamLocalForwarding yes in /etc/ssh/sshd_config, then "
        "sudo systemctl reload ssh",
    )


def _no_toolkit(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: Docker cannot hand GPUs to containers",
        (*_detail(figures), "the driver sees the GPUs, but no NVIDIA runtime or CDI device is registered"),
        TOOLKIT,
    )


def _docker_version(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: Docker's API version {_said(figures.get('api_version'))} cannot be used",
        _detail(figures),
        "update Docker Engine on the host: docker version shows both ends",
    )


def _rootless(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: Docker runs rootless or from a snap (data in {_said(figures.get('root_dir'))})",
        (
            "a snap sees no directories outside the home; rootless, NVIDIA's runtime must not set device rules",
        ),
        "keep models in the home directory; rootless: sudo nvidia-ctk config --set "
        "nvidia-container-cli.no-cgroups=true --in-place",
    )


def _docker_failed(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: Docker gave no usable answer",
        _detail(figures),
        "docker info on the host shows the same; journalctl -u docker -n 50 shows why",
    )


def _differs(subject: Given, figures: Given) -> Words:
    declared = _said(figures.get("declared"), "nothing")
    return told(
        f"{_host(subject)}: the inventory declares {declared}, found: {_said(figures.get('found'), 'nothing')}",
        ("the plan rests on what was found",),
        "correct gpus: in the inventory, or find out where the rest went: nvidia-smi -L on the host",
    )


def _same_machine(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)} and {_said(figures.get('other'))} are one machine",
        ("their machine ids are equal; its GPUs would be counted twice",),
        "take one of the names out of the inventory; machines cloned from one image: sudo rm /etc/machine-id && "
        "sudo systemd-machine-id-setup, then reboot",
    )


def _clock(subject: Given, figures: Given) -> Words:
    seconds = figures.get("seconds")
    skew = "off"
    if isinstance(seconds, (int, float)):
        skew = f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} this machine's"
    return told(
        f"{_host(subject)}: its clock is {skew}",
        ("logs of several hosts cannot be put in order, and certificates may look expired",),
        "sudo timedatectl set-ntp true; timedatectl shows whether it is in step",
    )


def _no_interface(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: the interface {_said(figures.get('interface'))} of the inventory is not there",
        (f"found: {_said(figures.get('found'), 'none')}",),
        "correct interface: in the inventory, or leave it out; ip -br addr on the host lists them",
    )


def _no_such_gpu(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: exclude_gpus names GPU {_said(figures.get('index'))}, which does not exist",
        ("the GPU that was meant may be in use now",),
        "correct exclude_gpus: in the inventory; nvidia-smi -L on the host lists the indexes",
    )


def _unanswered(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: no answer about {_said(figures.get('what'), 'part of the host')}",
        _detail(figures),
        "what depends on it stays unknown; gpuplan probe asks again",
    )


WORDS: dict[str, Worder] = {
    "GP601": _no_tool,
    "GP602": _no_driver,
    "GP603": _mismatch,
    "GP604": _hung,
    "GP605": _denied,
    "GP606": _unreadable,
    "GP608": _lost,
    "GP609": _no_memory,
    "GP611": _ecc,
    "GP612": _remapping,
    "GP613": _xid,
    "GP614": _throttled,
    "GP615": _no_slices,
    "GP616": _fabric,
    "GP617": _compute_mode,
    "GP618": _display,
    "GP619": _unified,
    "GP620": _vgpu,
    "GP621": _no_docker,
    "GP622": _docker_denied,
    "GP623": _docker_down,
    "GP624": _dial_stdio,
    "GP625": _no_way_to_docker,
    "GP626": _no_toolkit,
    "GP627": _docker_version,
    "GP628": _rootless,
    "GP629": _docker_failed,
    "GP631": _differs,
    "GP632": _same_machine,
    "GP633": _clock,
    "GP634": _no_interface,
    "GP635": _no_such_gpu,
    "GP636": _unanswered,
    "GP637": _windows,
}
