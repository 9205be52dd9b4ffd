"""A page for each thing that goes wrong with an image (GP830 to GP839) or the weights (GP840 to GP849) on a host."""

from gpuplan.present.page import Page
from gpuplan.present.page import page as _page

PAGES: tuple[Page, ...] = (
    _page(
        "GP830",
        "A host was lost while its image came",
        "The connection to the host, or its engine, went away while an image was pulled or copied, and did not come back "
        "within the tries there are.",
        "An engine that is only restarted is waited for, and the transfer begun again, twice.",
        "Look at the host (gpuplan probe), then deploy again: layers that had arrived are not fetched again by a pull.",
        "S4.12; deploy-failures row 19",
    ),
    _page(
        "GP831",
        "The image is missing",
        "The host does not have the image, and the way to bring it was closed (--image-source never), or nobody has it.",
        "Every host of a deployment gets the image before anything is created on any of them.",
        "Deploy with --image-source auto, or bring it yourself: docker pull on the host; docker save | ssh HOST docker load; "
        "--image-source FILE with an archive of docker save.",
        "order of operations, step 4",
    ),
    _page(
        "GP832",
        "Another build under the same tag",
        "A tag names one image on the leader and another on this host: it was pulled at another time, or built again.",
        "Ranks of unlike versions fail in ways that name anything but the image. The leader's build is the one for all: "
        "the host gets it by digest or by id. The host's tag is not moved, so what else runs there is not touched.",
        "Nothing, unless --image-source never was given. To end it: docker pull on all hosts, or an image by its digest: "
        "--image NAME@sha256:…",
        "order of operations, step 4; Ray compares versions of its nodes itself",
    ),
    _page(
        "GP833",
        "The image is for another architecture",
        "The image's architecture is not the host's, or the registry has none for it.",
        "Docker loads such an image without a word, and its programs end with 'exec format error'.",
        "Older tags of vllm/vllm-openai are for x86_64 only; newer ones, and NVIDIA's own images, are there for aarch64 "
        "(GH200, GB10) too. Hosts of unlike architecture cannot share one deployment.",
        "deploy-failures row 21",
    ),
    _page(
        "GP834",
        "No room for the image",
        "The file system of Docker's data has less space than the image takes unpacked.",
        "A pull that fills the disk fails after minutes, and stops whatever else writes there.",
        "docker system df, docker image prune. Docker's data can move to another disk: data-root in "
        "/etc/docker/daemon.json.",
        "size of the image as the engine reports it; free space to an ordinary user",
    ),
    _page(
        "GP835",
        "The disk got full while the image came",
        "The engine ran out of space while it pulled or loaded the image.",
        "An image takes its packed size and its unpacked size at once: 20 GB become 60 for a while. A host that copies an "
        "image to others needs room for its archive as well (Engine 20.10).",
        "Make room (docker image prune), then deploy again. What the engine had begun it takes back itself.",
        "deploy-failures row 22",
    ),
    _page(
        "GP836",
        "The registry does not know the image",
        "The registry answered that there is no such repository or tag.",
        "Registries say this of private repositories too.",
        "Check the spelling. An image that was built on this machine or a host is in no registry: --image-source fleet "
        "copies it to the others.",
        "deploy-failures row 19",
    ),
    _page(
        "GP837",
        "The registry refuses the image",
        "The registry wants a login, or the one it was given may not read the repository.",
        "Logins are read on this machine, from where docker login stores them, and sent with each pull; nothing is stored "
        "on a host.",
        "docker login REGISTRY on this machine, then deploy again.",
        "Docker Engine API, X-Registry-Auth",
    ),
    _page(
        "GP838",
        "The registry cannot be reached",
        "The host's engine could not pull: no way to the registry, a certificate it does not trust, too many requests, or "
        "a transfer that stands still.",
        "Every host pulls for itself. One that cannot is given the image by one that has it, through this machine; as a "
        "failure it is told when nobody has the image.",
        "Give the engine its proxy (systemctl edit docker), a mirror (vllm: {registry: HOST}), or bring the image: "
        "--image-source fleet, --image-source FILE.",
        "deploy-failures rows 19 and 20",
    ),
    _page(
        "GP839",
        "The image could not be copied",
        "An image that was copied from another host, or loaded from a file, did not arrive, or is not the one that was sent.",
        "A copy runs from engine to engine through this machine; both may refuse it.",
        "The engine's words say which. By hand: docker save IMAGE | ssh HOST docker load.",
        "Docker Engine API, /images/{name}/get and /images/load",
    ),
    _page(
        "GP840",
        "The model is not on the host",
        "The directory of the model is on other hosts, or on none, and not on this one.",
        "Every host of a deployment reads the weights from its own disk. A directory is looked for under the same absolute "
        "path, then as model_dir/NAME; a hub id as model_dir/ORG/NAME, model_dir/NAME, model_dir/ORG--NAME, then in the "
        "hub's cache. A model that some hosts have in a directory is not downloaded by the others.",
        "Copy it there: rsync -a. Or set model_dir of the host in the inventory.",
        "order of operations, step 5; S2.10",
    ),
    _page(
        "GP841",
        "Files of the model are missing",
        "The weight index names files that are not there, other hosts have files that this one lacks, or links of the "
        "hub's cache lead nowhere.",
        "The engine finds out minutes after its start, on one rank, while the others wait.",
        "Copy them from a host that has them, or let hf download fetch the rest. For a model of the hub's cache gpuplan does "
        "that itself.",
        "model.safetensors.index.json; vLLM weight_utils.filter_duplicate_safetensors_files",
    ),
    _page(
        "GP842",
        "A file of the model has the wrong size",
        "A weight file is shorter, or longer, than its own head says or than on another host.",
        "The head of a safetensors file tells where its last tensor ends. A file that was cut off loads up to there, then "
        "fails.",
        "Remove the file on that host and fetch it again. gpuplan deletes no file of yours.",
        "safetensors format: header length, data_offsets",
    ),
    _page(
        "GP843",
        "The model's files are not the same everywhere",
        "config.json, the tokenizer or the weight index differ from those of the first host; or files are links out of the "
        "directory, which a container would not see.",
        "Hosts with different revisions of a model answer wrongly, or fail in the middle of loading.",
        "Bring all hosts to one revision (rsync, or MODEL@COMMIT). For a snapshot of the hub's cache give the model's id "
        "instead of the path.",
        "SHA-256 of config.json and the index, sizes of the tokenizer's files",
    ),
    _page(
        "GP844",
        "No room for the weights",
        "The file system of the hub's cache has less space than what is still to be downloaded.",
        "It is known before the download begins, from the size of the checkpoint and what is there already.",
        "Make room, or set vllm: {huggingface_home: DIRECTORY} in the inventory to a larger disk.",
        "size of the checkpoint by its headers or index",
    ),
    _page(
        "GP845",
        "The disk got full during the download",
        "The download of the weights ran out of space.",
        "Something else wrote to the same disk, or the size was not known before. Nothing is deleted: the parts that came "
        "are taken up again.",
        "Make room on the file system that is named, then deploy again.",
        "deploy-failures row 22",
    ),
    _page(
        "GP846",
        "The hub does not give the model",
        "The model is gated or private, and the token, or its lack, is not enough.",
        "Gated models ask each account to accept their terms. The token is read on this machine and put into the container "
        "as a file for the time of the download.",
        "Accept the terms on the model's page, set HF_TOKEN, deploy again. A fine-grained token needs the permission to read "
        "public gated repositories.",
        "deploy-failures row 49; huggingface_hub GatedRepoError",
    ),
    _page(
        "GP847",
        "The hub does not have the model",
        "There is no such repository or revision.",
        "Private repositories look the same to those who may not see them.",
        "Check name and revision on the hub; for a private one set HF_TOKEN.",
        "huggingface_hub RepositoryNotFoundError, RevisionNotFoundError",
    ),
    _page(
        "GP848",
        "The download failed",
        "The container that downloads the weights ended without them: no way to the hub, too many requests, no "
        "huggingface_hub in the image, or it was killed.",
        "Each host downloads for itself, as its own login, into its own cache; hosts that share the directory do it once.",
        "A proxy or mirror goes into vllm: {env: {HTTPS_PROXY: …, HF_ENDPOINT: …}}. Without a network copy the model into "
        "model_dir.",
        "deploy-failures row 50",
    ),
    _page(
        "GP849",
        "A directory cannot be written",
        "A cache directory could not be made on the host, or the login may not write there.",
        "Directories are made by the login before any container starts: Docker would make them itself, owned by root.",
        "Make it for the login (sudo install -d -o USER DIRECTORY), or name another: vllm: {cache_dir: …, "
        "huggingface_home: …}.",
        "deploy-failures row 51",
    ),
)
