"""What is said of failed deployments: Docker, images and what is mounted (GP701 to GP718)."""

from gpuplan.present.diagnosed import Told

CONTAINERS = (
    Told(
        code="GP701",
        title="The login may not use Docker",
        headline="{place}: the login may not use the Docker engine",
        means="The engine's socket refuses this login: it is not in the group docker, or joined it after it logged in.",
        matters="No container can be made, started or read on that host.",
        hint="sudo usermod -aG docker USER on the host, then log in again; gpuplan check {host} shows whether it took",
        do=(
            "sudo usermod -aG docker USER on the host, then open a new session: group membership is read at login. gpuplan "
            "check HOST shows whether it took."
        ),
        source="docker/docker-py issue 3062",
    ),
    Told(
        code="GP702",
        title="The Docker engine is not running",
        headline="{place}: no Docker engine answers",
        means=(
            "The daemon is stopped, or its socket is somewhere else: rootless Docker and other contexts use their own."
        ),
        matters="No container can be made, started or read on that host.",
        hint="sudo systemctl start docker on the host; journalctl -u docker tells why it stopped",
        do=(
            "sudo systemctl start docker. If it does not stay up, journalctl -u docker tells why. For a socket elsewhere: "
            "docker context ls."
        ),
        source="Docker CLI and Engine API",
    ),
    Told(
        code="GP703",
        title="Docker's API version does not match",
        headline=(
            "{place}: Docker's API does not speak this version[: {client} asked for, at least {minimum} spoken][: {client} "
            "asked for, at most {maximum} spoken]"
        ),
        means="Engine and client have no API version in common.",
        matters="Every request is refused.",
        hint="update Docker Engine on the host (docker version shows both sides), and unset DOCKER_API_VERSION",
        do=(
            "Update Docker Engine on the host; docker version shows both sides. DOCKER_API_VERSION in the environment pins "
            "one version: unset it."
        ),
        source="Docker Engine 29 release notes",
    ),
    Told(
        code="GP704",
        title="Docker cannot hand out GPUs",
        headline=(
            "{place}: Docker cannot hand GPUs to containers: the NVIDIA Container Toolkit is missing, or not registered"
        ),
        means="Docker found no device driver with the capability gpu.",
        matters="The container is created, but never starts.",
        hint=(
            "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker, after installing "
            "nvidia-container-toolkit"
        ),
        do=(
            "Install the package nvidia-container-toolkit, then sudo nvidia-ctk runtime configure --runtime=docker && sudo "
            "systemctl restart docker."
        ),
        source="measured on Docker Engine 20.10",
    ),
    Told(
        code="GP705",
        title="A CDI device cannot be resolved",
        headline="{place}: Docker does not know the CDI devices that were asked for",
        means="CDI is off in this engine, the engine is too old for it, or its list of devices is stale.",
        matters="The container is created, but never starts.",
        hint="sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml on the host, then deploy again",
        do=(
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml renews the list; nvidia-ctk cdi list shows it. "
            "Engines before 25 have no CDI."
        ),
        source="NVIDIA Container Toolkit documentation, CDI",
    ),
    Told(
        code="GP706",
        title="The runtime is not registered",
        headline="{place}: Docker has no runtime[ named {runtime}]",
        means="The container was to run under a runtime that Docker's configuration does not name.",
        matters="The container is not created.",
        hint="sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
        do=(
            "Register it: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker. docker info "
            "lists the runtimes."
        ),
        source="measured on Docker Engine 20.10",
    ),
    Told(
        code="GP707",
        title="A device file is missing",
        headline="{place}: [the device {device} is not there][a device file is not there]",
        means=(
            "The container asks for a device file that the host does not have: the driver is not loaded, or the vendor is "
            "another."
        ),
        matters="The container is created, but never starts.",
        hint=(
            "ls -l /dev/kfd /dev/dri /dev/davinci* /dev/infiniband on the host; load the driver (sudo modprobe amdgpu), then "
            "deploy again"
        ),
        do=(
            "ls -l /dev/kfd /dev/dri /dev/davinci* /dev/infiniband on the host shows what is there. Load the driver, or "
            "correct the inventory."
        ),
        source="measured on Docker Engine 20.10",
    ),
    Told(
        code="GP708",
        title="The program is not in the image",
        headline="{place}: the image cannot run [{program}][what was to be started]",
        means=(
            "The program that was to be started is not in the image, or may not be executed. Official vLLM images carry no "
            "Ray since 0.18."
        ),
        matters="The container ends at once.",
        hint="use an image that has it (--image), or --executor mp where Ray is what is missing",
        do=(
            "docker run --rm --entrypoint sh IMAGE -c 'command -v vllm ray' shows what an image has. Several hosts need no "
            "Ray: --executor mp."
        ),
        source="vLLM issue 33445",
    ),
    Told(
        code="GP709",
        title="A directory to be mounted is not there",
        headline="{place}: a directory to be mounted is missing[: {path}]",
        means="The container mounts a path that the host does not have, or that is a file where a directory is meant.",
        matters="The container is not created. gpuplan makes its own caches, never a model directory.",
        hint="create it on the host (sudo mkdir -p PATH), or correct model_dir in the inventory",
        do="Create it on the host with the right owner, or correct model_dir in the inventory.",
        source="measured: Docker Engine API, containers/create",
    ),
    Told(
        code="GP710",
        title="The container's name is taken",
        headline="{place}: a container of this name exists[: {name}]",
        means="Another container has the name this one was to get: a leftover, or a second deploy at the same time.",
        matters="The container is not created.",
        hint="gpuplan status shows whose it is; gpuplan stop NAME removes one of ours, docker rm NAME a foreign one",
        do=(
            "gpuplan status shows whether it is one of ours: gpuplan stop NAME removes it. A foreign container is yours to "
            "rename or remove, or deploy under another --name."
        ),
        source="measured: Docker Engine API, containers/create, status 409",
    ),
    Told(
        code="GP711",
        title="The image does not exist",
        headline="{place}: the registry has no such image[: {image}]",
        means="The name or the tag is wrong, or the image was removed.",
        matters="Nothing can be created from it.",
        hint="check the tag (docker manifest inspect IMAGE), then deploy with --image",
        do="docker manifest inspect IMAGE asks the registry. Correct image: in the inventory, or pass --image.",
        source="Docker Engine API, images/create",
    ),
    Told(
        code="GP712",
        title="The registry asks for a login",
        headline="{place}: the registry refuses the image[ {image}] to this login",
        means="The repository is private, does not exist, or the stored login has expired.",
        matters="Nothing can be pulled.",
        hint="docker login REGISTRY on this machine; its stored logins are used for pulls on every host",
        do=(
            "docker login REGISTRY on this machine. Registries answer the same for a private and a missing repository: check "
            "the name too."
        ),
        source="Docker registry API",
    ),
    Told(
        code="GP713",
        title="The registry limits pulls",
        headline="{place}: the registry allows no more pulls for now",
        means="Docker Hub counts anonymous pulls by address: several hosts behind one address share the allowance.",
        matters="The pull fails until the window is over.",
        hint=(
            "docker login on this machine raises the limit; a mirror, or an image copied from a host that has it, needs no "
            "pull"
        ),
        do="Log in, use a mirror (image: in the inventory), or let gpuplan copy the image from a host that has it.",
        source="https://docs.docker.com/docker-hub/download-rate-limit/",
    ),
    Told(
        code="GP714",
        title="The image is for another processor",
        headline="{place}: the image is not made for this host's processor[ ({platform})]",
        means=(
            "The image has no build for the host's architecture: an x86 image on an ARM host (GH200, GB10), or the reverse."
        ),
        matters="It cannot run, even where it can be pulled.",
        hint="use an image with a build for uname -m of that host (--image); NVIDIA's NGC images have ARM builds",
        do=(
            "docker manifest inspect IMAGE lists the platforms. Recent vllm/vllm-openai images have arm64; else use NVIDIA's."
        ),
        source="vLLM issue 30076",
    ),
    Told(
        code="GP715",
        title="No room for the image",
        headline="{place}: no space left for the image[ at {path}]",
        means="Docker's directory is full. An image of 10 to 20 GB grows to 25 to 40 GB when it is unpacked.",
        matters="The pull stops in the middle.",
        hint="docker system df and df -h /var/lib/docker on the host; docker image prune frees what nothing uses",
        do=(
            "docker system df shows what can go; docker image prune -a removes images that no container uses. Or move "
            "Docker's data-root to a larger disk."
        ),
        source="Docker Engine, layer extraction",
    ),
    Told(
        code="GP716",
        title="The registry cannot be reached",
        headline="{place}: the registry cannot be reached[: {registry}]",
        means="The host has no way to the registry: no network, no DNS, or a proxy Docker does not know.",
        matters="Nothing can be pulled on that host.",
        hint=(
            "let gpuplan copy the image from a host or machine that has it, or set Docker's proxy (systemctl edit docker)"
        ),
        do=(
            "Hosts without a way out get the image streamed from this machine or from another host. A proxy belongs into "
            "Docker's own settings: systemctl edit docker."
        ),
        source="Docker registry API",
    ),
    Told(
        code="GP717",
        title="No room for the model",
        headline="{place}: no space left on the disk[ at {path}]",
        means="A disk inside the container is full: mostly the model cache, which needs the whole checkpoint's size.",
        matters="The download or the start stops in the middle.",
        hint="df -h on the host shows which file system; free it, or point model_dir in the inventory to a larger one",
        do=(
            "df -h on the host shows which file system is full. Free it, or point model_dir to a larger one. If it is "
            "/dev/shm, raise shm_size."
        ),
        source="vLLM issue 6574",
    ),
    Told(
        code="GP718",
        title="The container could not be started",
        headline="{place}: Docker could not start the container",
        means="Docker's own words, which none of the known causes matches.",
        matters="The container was created and never ran.",
        hint="sudo journalctl -u docker --since -10min on the host has more words",
        do="Read Docker's words; sudo journalctl -u docker --since -10min on the host has more.",
        source="Docker State.Error; exit codes 125 and 128",
    ),
)
