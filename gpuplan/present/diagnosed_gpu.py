"""What is said of failed deployments: CUDA, the driver and the cards (GP720 to GP733)."""

from gpuplan.present.diagnosed import Told

GPUS = (
    Told(
        code="GP720",
        title="CUDA error 802: the NVSwitch fabric is not up",
        headline="{place}: CUDA does not start (error 802): the NVSwitch fabric is not up",
        means=(
            "On hosts with NVSwitch no GPU works until nvidia-fabricmanager, of exactly the driver's version, has set up the "
            "fabric."
        ),
        matters="No program on the host can use a GPU.",
        hint="sudo systemctl enable --now nvidia-fabricmanager on the host; its version must be the driver's",
        do=(
            "Install the nvidia-fabricmanager of the driver's version, then sudo systemctl enable --now "
            "nvidia-fabricmanager. nvidia-smi -q | grep -A3 Fabric must say Completed."
        ),
        source="gpustack issue 4154",
    ),
    Told(
        code="GP721",
        title="CUDA error 803: two driver libraries",
        headline="{place}: CUDA does not start (error 803): the image's driver library hides the host's",
        means=(
            "The compatibility libraries inside the image come before the host's own, or the driver was updated without a "
            "reboot."
        ),
        matters="No program in the container can use a GPU.",
        hint=(
            "set env: {LD_LIBRARY_PATH: /usr/local/nvidia/lib64:/usr/local/nvidia/lib} under vllm: in the inventory; after a "
            "driver update, reboot"
        ),
        do=(
            "Put /usr/local/nvidia/lib64:/usr/local/nvidia/lib first in LD_LIBRARY_PATH (env: in the inventory), or reboot "
            "after a driver update."
        ),
        source="vLLM issue 33447, pull request 33992",
    ),
    Told(
        code="GP722",
        title="CUDA error 804: the driver is too old for this card",
        headline="{place}: CUDA does not start (error 804): the driver is older than the image's CUDA",
        means=(
            "Forward compatibility exists on data-center cards only; on others the driver must be as new as the image's CUDA."
        ),
        matters="No program in the container can use a GPU.",
        hint="update the NVIDIA driver on the host, or use an image of an older CUDA (--image, --vllm-version)",
        do="Update the driver, or use an image built for an older CUDA.",
        source="vLLM issue 5283",
    ),
    Told(
        code="GP723",
        title="The driver is too old for the image",
        headline="{place}: the NVIDIA driver is too old for this image[, which needs CUDA {cuda}]",
        means=(
            "The image's CUDA is newer than what the host's driver offers. vLLM 0.33 is built for CUDA 13, which needs "
            "driver 580."
        ),
        matters="CUDA does not start in the container.",
        hint="update the NVIDIA driver on the host, or use an image of an older CUDA (--image, --vllm-version)",
        do="nvidia-smi shows the driver and the CUDA it offers. Update it, or use an image built for that CUDA.",
        source="vLLM 0.33 wheels are built for CUDA 13",
    ),
    Told(
        code="GP724",
        title="The image has no kernels for this card",
        headline="{place}: the image has no kernels for this card[ ({capability})]",
        means=(
            "The image was not built for the card's compute capability: the card is newer than the image, or no longer "
            "supported."
        ),
        matters="The first kernel fails.",
        hint=(
            "use a newer image (--image), for GB10 one of CUDA 13 or NVIDIA's; for old cards an older vLLM (--vllm-version)"
        ),
        do=(
            "Newer cards need a newer image, GB10 one of CUDA 13 or NVIDIA's own; cards that were dropped need an older vLLM."
        ),
        source="vLLM pull request 40991",
    ),
    Told(
        code="GP725",
        title="The container lost its GPUs",
        headline="{place}: the driver's management library does not answer in the container",
        means=(
            "After systemctl daemon-reload the device cgroup can be taken from running containers; or library and module of "
            "the driver differ."
        ),
        matters="The engine can no longer see its GPUs.",
        hint=(
            "gpuplan deploy again; nvidia-smi on the host tells whether its own driver works (a mismatch needs a reboot)"
        ),
        do=(
            "Start the containers anew. To keep it from coming back: nvidia-container-toolkit 1.12 or newer with its "
            "/dev/char links, or CDI. A version mismatch needs a reboot."
        ),
        source="nvidia-container-toolkit issues 48 and 1227",
    ),
    Told(
        code="GP726",
        title="CUDA_VISIBLE_DEVICES holds a UUID",
        headline="{place}: CUDA_VISIBLE_DEVICES holds a UUID[ ({device})], which this release cannot read",
        means=(
            "Many releases read CUDA_VISIBLE_DEVICES as numbers. The container gets its GPUs from Docker, so the variable is "
            "not needed."
        ),
        matters="The engine fails while it inspects the model, often under a misleading name.",
        hint="take CUDA_VISIBLE_DEVICES out of env: in the inventory and out of the image",
        do="Remove the variable: gpuplan hands out GPUs by Docker's device requests.",
        source="vLLM issue 41848",
    ),
    Told(
        code="GP727",
        title="No GPU in the container",
        headline="{place}: the engine sees no GPU",
        means="The container was given no GPU, an unknown one, or the driver does not work inside it.",
        matters="The engine does not start.",
        hint="gpuplan check {host} tries a container with GPUs; nvidia-smi -L on the host lists what is there",
        do=(
            "gpuplan check HOST tries a container with GPUs. nvidia-smi -L lists the UUIDs; a GPU that was replaced has "
            "another one: probe and plan again."
        ),
        source="vLLM 0.33 config/device.py, run without a GPU",
    ),
    Told(
        code="GP728",
        title="A GPU failed",
        headline="{place}: a GPU failed[ at {pci}][, Xid {xid}]",
        means=(
            "The driver reports a fault of the hardware or of its link: the card fell off the bus, needs a reset, or has "
            "memory errors."
        ),
        matters="What runs on it ends, and what is started on it fails.",
        hint=(
            "sudo dmesg -T | grep -iE 'nvrm|xid' on the host; keep the card out with exclude_gpus until it is reset or "
            "replaced"
        ),
        do=(
            "sudo dmesg -T | grep -iE 'nvrm|xid' shows which card and which Xid (https://docs.nvidia.com/deploy/xid-errors). "
            "List it under exclude_gpus, reset or replace it."
        ),
        source="vLLM issue 30112",
    ),
    Told(
        code="GP729",
        title="The card has no bfloat16",
        headline="{place}: bfloat16 needs compute capability {needed}[, {device} has {capability}]",
        means="The model's weights are bfloat16, which cards before Ampere cannot compute.",
        matters="The engine refuses to start.",
        hint="pass -- --dtype half, if the model bears it",
        do="-- --dtype half converts to float16; some models become unstable in it. Or use newer cards.",
        source="vLLM platforms/cuda.py",
    ),
    Told(
        code="GP730",
        title="The quantization does not run on this card",
        headline=(
            "{place}: the quantization[ {method}] does not run here[: it needs capability {needed}, the card has "
            "{capability}]"
        ),
        means=(
            "The checkpoint's quantization has no kernel for this card, or this release of the engine no longer has it."
        ),
        matters="The engine refuses to start.",
        hint="use another variant of the model, or newer cards",
        do="Use another variant of the checkpoint or newer cards. gguf left vLLM by 0.24, bitsandbytes by 0.28.",
        source="vLLM config/vllm.py",
    ),
    Told(
        code="GP731",
        title="A kernel crashed",
        headline="{place}: a GPU kernel crashed[: {reason}]",
        means=(
            "A kernel accessed memory it should not, or failed to launch: mostly a fault of this release with this model, "
            "card and settings."
        ),
        matters="The CUDA context is lost; the whole server has to start anew.",
        hint=(
            "try -- --enforce-eager, another attention backend, or another vLLM (--vllm-version); sudo dmesg -T | grep -i "
            "xid tells whether it is the card"
        ),
        do=(
            "Try --enforce-eager, another attention backend or another release, and the same on other cards. Xid 13 and 31 "
            "accompany such a crash; 48, 79 and 94 mean the card."
        ),
        source="start-up logs of vLLM 0.11 to 0.26",
    ),
    Told(
        code="GP732",
        title="The GPU does not take this process",
        headline="{place}: a GPU is busy or takes no more processes",
        means="The card is in exclusive compute mode and already has a process, or it hangs.",
        matters="CUDA does not start on it.",
        hint=(
            "nvidia-smi on the host shows who uses it; sudo nvidia-smi -i INDEX -c DEFAULT allows more than one process"
        ),
        do=(
            "nvidia-smi shows who uses it. sudo nvidia-smi -i INDEX -c DEFAULT leaves exclusive mode. A card that hangs "
            "needs a reset."
        ),
        source="CUDA error 46, cudaErrorDevicesUnavailable",
    ),
    Told(
        code="GP733",
        title="A kernel could not be compiled",
        headline="{place}: a kernel could not be compiled in the container",
        means=(
            "The engine compiles some kernels when it starts, and the image lacks the compiler, or the compiler failed."
        ),
        matters="The start fails where such a kernel is needed.",
        hint="use the official image of this release (it has nvcc, gcc and ninja), or another attention or MoE backend",
        do=(
            "The official image has nvcc, gcc and ninja. Otherwise choose a backend that needs no compilation. An empty or "
            "read-only kernel cache can also be the reason."
        ),
        source="start-up logs of vLLM 0.22 (FlashInfer, Ninja build failed)",
    ),
)
