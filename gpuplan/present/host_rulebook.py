"""A page for each state of a host: its GPUs (GP601 to GP620), its Docker engine (GP621 to GP629), the rest (GP631 to GP637)."""

from gpuplan.present.page import Page
from gpuplan.present.page import page as _page

PAGES: tuple[Page, ...] = (
    _page(
        "GP601",
        "NVIDIA hardware without its tool",
        "The PCI bus has NVIDIA devices, but nvidia-smi is not on the host.",
        "Without the driver and its tool nothing of these GPUs can be read, and no container can use them.",
        "Install the driver with its utilities (Ubuntu: sudo ubuntu-drivers install --gpgpu) and reboot. Where the tool is there "
        "but not on the login's PATH, make it so for non-interactive shells.",
        "PCI vendor 10de under /sys/bus/pci/devices",
    ),
    _page(
        "GP602",
        "The driver does not answer",
        "nvidia-smi runs, but the kernel module behind it does not.",
        "No program on the host can use a GPU in this state.",
        "sudo modprobe nvidia. If that fails, the module was most likely not built for the running kernel: dkms status, "
        "reinstall the driver package, reboot.",
        "NVML error 9, driver not loaded",
    ),
    _page(
        "GP603",
        "Driver and library are of different versions",
        "The kernel still runs the module from before an update of the driver package.",
        "Running programs go on, but nothing new can open a GPU: containers fail at start.",
        "Reboot. Or, when nothing uses the GPUs, unload the modules and load them again: sudo rmmod nvidia_uvm nvidia_drm "
        "nvidia_modeset nvidia && sudo modprobe nvidia. Hold the driver package back from automatic updates.",
        "NVML error 18, driver/library version mismatch; nvidia-container-toolkit issue 394",
    ),
    _page(
        "GP604",
        "The GPU tool hangs",
        "The tool gave no answer within the time it was given, and was left to end by itself.",
        "A process that waits in the driver cannot be ended. The hang is that of the driver or a card, not of the tool.",
        "Look at the kernel's log: sudo dmesg -T | grep -iE 'nvrm|xid'. A reboot is the usual way out; a card that causes it "
        "again is faulty.",
        "time limit of each probe command",
    ),
    _page(
        "GP605",
        "The login may not use the GPU tool",
        "The tool exists, but the operating system refuses it, or the device files, to this login.",
        "gpuplan never uses sudo, so what the login may not see is not part of a plan.",
        "ls -l /dev/nvidia* /dev/kfd /dev/dri/renderD* shows who may. AMD: sudo usermod -aG video,render USER, then log "
        "in again.",
        "NVML error 4, no permission; exit status 126",
    ),
    _page(
        "GP606",
        "The GPU tool failed",
        "The tool ended with an error that has no code of its own here, or printed something that cannot be read.",
        "Its GPUs are unknown, so they are not used.",
        "Run the tool on the host and compare. If it works there, save what it prints: a form of output that is not known yet "
        "belongs into the tests.",
        "recorded outputs of the probes",
    ),
    _page(
        "GP608",
        "A GPU is lost",
        "The driver knows of the card but cannot reach it, or says that it needs a reset.",
        "Such a card has fallen off the bus or stopped after a fault. Everything started on it fails, so it is left out.",
        "When nothing runs on it: sudo nvidia-smi --gpu-reset -i INDEX. If that fails, reboot. If it comes back, check power, "
        "cooling and the slot, then have the card replaced.",
        "NVML errors 15 (GPU is lost) and 16 (reset required); Xid 79",
    ),
    _page(
        "GP609",
        "Memory of a GPU unknown",
        "The driver names the GPU but gives no figure for its memory.",
        "A size is never guessed, so the GPU is not used.",
        "nvidia-smi -q -d MEMORY on the host shows the driver's words. On machines that share memory with the GPU the host's RAM "
        "is taken instead.",
        "S0 correction 5",
    ),
    _page(
        "GP611",
        "Uncorrectable memory errors",
        "The card counted memory errors that error correction could not repair.",
        "Each one ends the program that hit it. A few over a card's life are normal; a growing number is not.",
        "Watch the count: nvidia-smi -q -d ECC -i INDEX. If it grows, list the card under exclude_gpus and have it replaced.",
        "NVML volatile uncorrected ECC counts; Xid 48, 94, 95",
    ),
    _page(
        "GP612",
        "Faulty memory not yet taken out of use",
        "The card wants to retire pages or remap rows and waits for a reset; or it has no spare rows left.",
        "While it waits the card works; after a failed remapping the faulty memory stays in use.",
        "Pending: reset the card when nothing runs on it (sudo nvidia-smi --gpu-reset -i INDEX), or reboot. Failed: list it "
        "under exclude_gpus and have it replaced (RMA).",
        "NVIDIA GPU memory error management; dynamic page retirement; Xid 63, 64",
    ),
    _page(
        "GP613",
        "Xid errors in the kernel's log",
        "The driver logged an error of a GPU since the host was started.",
        "Some Xids come from a faulty program (13, 31, 43), others from the card or its link (48, 63, 64, 74, 79, 94, 95).",
        "sudo dmesg -T | grep -i xid shows when and which process. NVIDIA's catalogue says what each number asks for.",
        "https://docs.nvidia.com/deploy/xid-errors",
    ),
    _page(
        "GP614",
        "A GPU is slowed down",
        "The card lowers its clocks for heat, power or a fault of its supply.",
        "Ranks work in step: a placement is as fast as its slowest GPU.",
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i INDEX shows the reason: fans and air flow, power cables, or a limit "
        "that was set (sudo nvidia-smi -i INDEX -pl WATTS).",
        "NVML clocks event reasons",
    ),
    _page(
        "GP615",
        "MIG without slices",
        "The card is in MIG mode, but no slice has been made.",
        "In MIG mode nothing runs outside a slice, so the card is left out.",
        "Make slices: nvidia-smi mig -lgip lists the profiles, sudo nvidia-smi mig -i INDEX -cgi PROFILE -C makes one. Or turn "
        "MIG off while the card is idle: sudo nvidia-smi -i INDEX -mig 0.",
        "NVIDIA MIG user guide",
    ),
    _page(
        "GP616",
        "NVSwitch fabric not ready",
        "The GPUs are connected by NVSwitch, and the fabric has not been set up.",
        "CUDA fails to start on all of them with error 802, system not yet initialized.",
        "sudo systemctl enable --now nvidia-fabricmanager. Its version must be exactly the driver's; journalctl -u "
        "nvidia-fabricmanager says what is wrong.",
        "NVIDIA fabric manager user guide; nvidia-smi -q, fabric state",
    ),
    _page(
        "GP617",
        "Restricted compute mode",
        "The card accepts one process only, or none.",
        "The engine starts several processes on a host, and deployments may share a card: they are refused.",
        "sudo nvidia-smi -i INDEX -c DEFAULT. If somebody set it on purpose, list the card under exclude_gpus.",
        "NVML compute mode",
    ),
    _page(
        "GP618",
        "A display is attached",
        "A desktop uses this card.",
        "It holds memory, and takes more when somebody works on it: what was free at the plan may not be at the start.",
        "Keep some back in the inventory: reserve: {vram: 1GiB}.",
        "nvidia-smi -q, display active",
    ),
    _page(
        "GP619",
        "Unified memory",
        "The GPU has no memory of its own; total and free are the host's, from /proc/meminfo.",
        "What other programs take is missing to the GPU, and the other way round. GP211 says what that means for a start.",
        "Keep reserve: {ram: 12GiB} or more in the inventory and gpu-memory-utilization at 0.75 or less.",
        "vLLM utils/mem_utils.py: on integrated GPUs free is what the kernel calls available",
    ),
    _page(
        "GP620",
        "Virtual GPU",
        "The host is a virtual machine with a part of a card.",
        "Total is that part. What the hypervisor gives to others does not show here.",
        "Nothing, if the size is what you expect. Profiles without CUDA cannot run an engine.",
        "NVIDIA vGPU; nvidia-smi -q, virtualization mode",
    ),
    _page(
        "GP621",
        "No Docker",
        "Docker is not installed on the host, or its socket is not where it should be.",
        "Models run in containers: the host can be planned for, but nothing can be deployed there.",
        "Install Docker Engine (https://docs.docker.com/engine/install), then sudo systemctl enable --now docker. For a socket "
        "elsewhere, give its path to the login as DOCKER_HOST.",
        "probe of the Docker socket",
    ),
    _page(
        "GP622",
        "No permission on the Docker socket",
        "The login is not a member of the group that owns the socket.",
        "gpuplan never uses sudo on a host; it needs what `docker ps` needs.",
        "sudo usermod -aG docker USER on the host, then log in again: sessions that are open keep their old groups. Members of "
        "that group are as powerful as root.",
        "Docker post-installation steps",
    ),
    _page(
        "GP623",
        "Docker is not running",
        "The socket is there, but nobody answers on it.",
        "Nothing can be deployed on the host until the daemon runs.",
        "sudo systemctl start docker; journalctl -u docker -n 50 says why it stopped. sudo systemctl enable docker starts it "
        "with the host.",
        "probe of the Docker socket",
    ),
    _page(
        "GP624",
        "Docker through its own client",
        "The SSH server forbids forwarding sockets, so `docker system dial-stdio` on the host carries the connection.",
        "It does the same job; each connection is one more process on the host.",
        "Nothing. AllowStreamLocalForwarding yes in /etc/ssh/sshd_config allows the direct way.",
        "sshd_config, AllowStreamLocalForwarding",
    ),
    _page(
        "GP625",
        "No way to Docker",
        "The SSH server forbids forwarding sockets, and there is no docker client on the host to do it instead.",
        "The engine may be in order, but it cannot be reached.",
        "Install the client (package docker-ce-cli), or set AllowStreamLocalForwarding yes in /etc/ssh/sshd_config and run sudo "
        "systemctl reload ssh (sshd on Red Hat).",
        "sshd_config, AllowStreamLocalForwarding",
    ),
    _page(
        "GP626",
        "Docker cannot hand GPUs to containers",
        "The driver sees GPUs, but Docker has neither an NVIDIA runtime nor CDI devices.",
        "A container with GPUs fails at start: could not select device driver.",
        "Install the package nvidia-container-toolkit from NVIDIA's repository, then sudo nvidia-ctk runtime configure "
        "--runtime=docker && sudo systemctl restart docker. The restart stops running containers unless live-restore is on.",
        "NVIDIA container toolkit install guide; GET /info, Runtimes and DiscoveredDevices",
    ),
    _page(
        "GP627",
        "Docker's API version cannot be used",
        "The engine speaks no version of its API that this program speaks.",
        "Requests would be refused or mean something else.",
        "Update Docker Engine on the host; docker version shows what it speaks.",
        "GET /version, ApiVersion and MinAPIVersion",
    ),
    _page(
        "GP628",
        "Rootless or snap Docker",
        "The engine runs without root, or as a snap.",
        "A snap sees nothing outside the home directory, so model directories elsewhere look empty. Rootless engines cannot set "
        "device rules and need that switched off in NVIDIA's runtime.",
        "Keep models in the home directory. Rootless: sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true "
        "--in-place. Or install Docker Engine from Docker's own packages.",
        "GET /info, SecurityOptions and DockerRootDir",
    ),
    _page(
        "GP629",
        "Docker failed",
        "The engine answered with an error that has no code of its own here.",
        "Nothing is known of its images and containers, and nothing can be deployed.",
        "docker info on the host shows the same; journalctl -u docker -n 50 shows why.",
        "the engine's own answer",
    ),
    _page(
        "GP631",
        "Not the hardware that was declared",
        "The inventory declares other GPUs for this host than were found.",
        "A missing GPU has often fallen off the bus; another model means that --no-probe plans for the wrong machine.",
        "nvidia-smi -L on the host lists what is there. Correct gpus: in the inventory, or find out where the rest went.",
        "inventory rules",
    ),
    _page(
        "GP632",
        "Two names, one machine",
        "Two hosts of the inventory have the same machine id.",
        "Their GPUs would be counted twice, and two deployments would meet on one card.",
        "Take one name out of the inventory. Machines cloned from one image need ids of their own: sudo rm /etc/machine-id && "
        "sudo systemd-machine-id-setup, then reboot.",
        "/etc/machine-id",
    ),
    _page(
        "GP633",
        "The clock is off",
        "The host's clock differs from this machine's by more than the time the question took.",
        "Logs of several hosts cannot be put in order, and certificates may look expired or not yet valid.",
        "sudo timedatectl set-ntp true; timedatectl shows whether it is in step.",
        "date on the host, against the round trip",
    ),
    _page(
        "GP634",
        "No such interface",
        "The data interface or address of the inventory is not on the host.",
        "NCCL and Gloo are bound to it by name: ranks would not find each other.",
        "ip -br addr on the host lists the names, which differ from host to host. Correct interface: in the inventory, or leave "
        "it out and let the probe choose.",
        "S1.12",
    ),
    _page(
        "GP635",
        "An excluded GPU does not exist",
        "exclude_gpus names an index that the host does not have.",
        "Indexes move when a card is added or lost: the GPU that was to be kept out may be in use.",
        "nvidia-smi -L on the host lists the indexes. Correct exclude_gpus: in the inventory.",
        "inventory rules",
    ),
    _page(
        "GP636",
        "Part of the probe gave no answer",
        "One of the questions to the host failed; the others were answered.",
        "What depends on it is unknown, and treated so: never as zero, never as in order.",
        "The detail says what the host said. gpuplan probe asks again.",
        "probe rules",
    ),
    _page(
        "GP637",
        "Windows gives out the memory",
        "The host is Linux under Windows (WSL); its GPU is driven by Windows.",
        "CUDA reports all of the card as total but never has all of it free: the desktop and the driver keep half a GiB and "
        "a fiftieth of the card at least, which the plan leaves alone. What nvidia-smi prints as free is not what CUDA finds.",
        "Close programs that draw on Windows, and ask for a gpu-memory-utilization of 0.9 or less.",
        "vLLM start-up logs under WSL: 1.05 GiB of 6.0, 1.33 of 15.99, 1.54 of 23.99, 1.64 of 31.84 gone",
    ),
)
