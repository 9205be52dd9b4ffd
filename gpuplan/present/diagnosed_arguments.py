"""What is said of failed deployments: arguments the engine refuses (GP750 to GP758); the model and its files (GP759 to GP766)."""

from gpuplan.present.diagnosed import Told

ARGUMENTS = (
    Told(
        code="GP750",
        title="The engine refuses the tensor-parallel size",
        headline="{place}: {heads} attention heads cannot be divided over TP {tensor}",
        means="Every rank computes whole attention heads.",
        matters="The engine refuses before it loads anything.",
        hint="choose a size that divides the heads: -- --tensor-parallel-size N",
        do="Choose a size that divides the number of heads, or pipeline stages.",
        source="vLLM config/model.py",
    ),
    Told(
        code="GP751",
        title="Fewer GPUs than ranks",
        headline="{place}: {world} ranks, but the engine sees {gpus} GPUs",
        means=(
            "The ranks of one host must not exceed the GPUs its container has; over several hosts the engine must be told of "
            "them."
        ),
        matters="The engine refuses before it loads anything.",
        hint="nvidia-smi -L in the container shows what it has; plan again if a GPU is gone",
        do="Plan again after a new probe. With arguments of your own: --nnodes for several hosts, or a smaller size.",
        source="vLLM config/parallel.py",
    ),
    Told(
        code="GP752",
        title="The engine refuses the number of nodes",
        headline="{place}: the engine refuses this division over hosts[ (--nnodes {nodes})]",
        means="vLLM's own multi-node mode needs the same number of ranks on every host, and its own executor.",
        matters="The engine refuses before it loads anything.",
        hint="plan with equal numbers of GPUs on each host, or --executor ray",
        do="Use equal numbers of GPUs on each host; unequal numbers need Ray (--executor ray).",
        source="vLLM 0.33 config/parallel.py, measured with its own parser",
    ),
    Told(
        code="GP753",
        title="The engine refuses the data-parallel mode",
        headline="{place}: the engine refuses this data-parallel mode",
        means=(
            "Dense models have no external data parallel; one way of balancing at a time; headless nodes serve no HTTP."
        ),
        matters="The engine refuses before it loads anything.",
        hint="use --replicas N for a dense model, and leave data-parallel flags of your own out",
        do=(
            "For a dense model use --replicas: independent servers. Leave --data-parallel-* and --api-server-count to "
            "gpuplan."
        ),
        source="vLLM 0.33 config/parallel.py, measured with its own parser",
    ),
    Told(
        code="GP754",
        title="The context is longer than the model allows",
        headline="{place}: a context of {max_model_len} tokens is beyond the model's {derived}",
        means="The model's configuration allows fewer positions.",
        matters=(
            "The engine refuses unless VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 is set; answers may be wrong beyond the trained "
            "length."
        ),
        hint="[--context {derived:raw}][a shorter --context]",
        do="Use --context up to the model's length, or scale the positions with --hf-overrides.",
        source="vLLM config/model.py",
    ),
    Told(
        code="GP755",
        title="The engine does not know an argument",
        headline="{place}: this release of the engine refuses [{flags}][an argument][: {reason}]",
        means="The flag was removed, is newer than the image, or has a wrong value.",
        matters="It exits with status 2 before anything else.",
        hint="leave it out, or use an image whose release knows it (--vllm-version)",
        do="vllm serve --help in the image lists its flags. Leave the flag out, or use another release.",
        source="measured with vLLM 0.33, argparse",
    ),
    Told(
        code="GP756",
        title="A size does not divide",
        headline="{place}: the model cannot be cut like this[: {value} is not divisible by {parts}]",
        means="A layer, an expert or a quantization block would end inside a rank.",
        matters="No argument check sees it: the engine fails while it builds or loads the model.",
        hint="a smaller -- --tensor-parallel-size, or -- --enable-expert-parallel for experts",
        do="Use a smaller tensor-parallel size; --enable-expert-parallel keeps experts whole.",
        source="vLLM distributed/utils.py, divide",
    ),
    Told(
        code="GP757",
        title="The model has no pipeline stages",
        headline="{place}: this model cannot run in pipeline stages",
        means="Its class does not implement the engine's pipeline interface.",
        matters="The engine refuses before it loads anything.",
        hint="tensor parallel on one host: --no-distributed, or larger cards",
        do="Use tensor parallel on one host, or another variant of the model.",
        source="vLLM models/interfaces.py, SupportsPP",
    ),
    Told(
        code="GP758",
        title="The engine refuses its configuration",
        headline="{place}: the engine refuses its configuration[: {reason}][ ({config})]",
        means="A check of the engine's own configuration failed.",
        matters="It refuses before it loads anything.",
        hint="correct the argument it names; gpuplan plan shows every argument that was set",
        do=(
            "The engine's line names the argument. gpuplan deploy --dry-run shows which ones were yours and which were added."
        ),
        source="vLLM config, pydantic validation",
    ),
)

MODELS = (
    Told(
        code="GP759",
        title="The model is gated",
        headline="{place}: the hub refuses the model[ {model}] to this login",
        means="The licence has not been accepted, or no token, or one without the right to read it, reached this host.",
        matters="Every host of the deployment downloads for itself and needs the token.",
        hint="accept the licence on the model's page, then deploy with HF_TOKEN set on this machine",
        do=(
            "Accept the licence at https://huggingface.co/MODEL, set HF_TOKEN on this machine: gpuplan passes it to every "
            "host as a file. Or place the model under model_dir."
        ),
        source="transformers utils/hub.py",
    ),
    Told(
        code="GP760",
        title="The model was not found",
        headline="{place}: there is no such model[: {model}]",
        means=(
            "The hub has no such repository or revision, or the directory is not in the container or lacks its configuration."
        ),
        matters="Nothing can be loaded.",
        hint="check the name (gpuplan estimate MODEL), or that model_dir holds it on {host}",
        do=(
            "gpuplan estimate MODEL reads the same name. A directory must exist, complete, at the same path on every host."
        ),
        source="huggingface_hub errors",
    ),
    Told(
        code="GP761",
        title="The model is not in the cache, and the hub is off",
        headline="{place}: the model is not in this host's cache, and the hub was not reached",
        means=(
            "The engine was told to stay offline, or found no way out, and the snapshot (or that of a draft model or "
            "tokenizer) is not complete here."
        ),
        matters="Each host reads its own cache.",
        hint="deploy with the hub reachable, or place the model on every host under model_dir",
        do=(
            "Let gpuplan download the model to every host first, or copy it under model_dir. Check that HF_HOME is the "
            "directory that is mounted."
        ),
        source="huggingface_hub issue 4487",
    ),
    Told(
        code="GP762",
        title="The cache may not be written",
        headline="{place}: the container may not write[ {path}][ to its cache]",
        means=(
            "The directory belongs to another user, or is mounted read-only. Locks and references are written even where "
            "nothing is downloaded."
        ),
        matters="The engine cannot use the cache.",
        hint="ls -ld PATH on the host; sudo chown -R USER PATH, or run as its owner",
        do="Give the directory to the user the container runs as, or mount it writable.",
        source="huggingface_hub issue 3394",
    ),
    Told(
        code="GP763",
        title="This release does not know the architecture",
        headline="{place}: this release does not support the model's architecture[ ({architecture})]",
        means="The model is newer than the image, or needs a plugin.",
        matters="The engine refuses before it loads anything.",
        hint="use a newer release: --vllm-version X.Y.Z or --image",
        do=(
            "Use a newer image, or one with the plugin the model's page names. 'Failed to be inspected' hides another error "
            "some lines above."
        ),
        source="vLLM model_executor/models/registry.py",
    ),
    Told(
        code="GP764",
        title="The model brings its own code",
        headline="{place}: the model's repository holds code that it wants to run",
        means="Its configuration or tokenizer is a Python program in the repository.",
        matters="It runs with the rights of the container; gpuplan does not allow it by itself.",
        hint="read the repository's code; if you trust it: -- --trust-remote-code",
        do="Read the code; if you trust it, pass -- --trust-remote-code and pin a revision.",
        source="vLLM transformers_utils/config.py",
    ),
    Told(
        code="GP765",
        title="A file of the model is broken",
        headline="{place}: a file of the model is incomplete or broken[: {path}][ ({reason})]",
        means="A download was cut off, a copy is incomplete, or a file of Git LFS is only its pointer.",
        matters="The weights cannot be read.",
        hint="compare sizes on the hosts; delete the broken file on {host} and deploy again",
        do=(
            "Compare sizes with the hub or another host (ls -lL), delete what differs and download it again. Files of some "
            "hundred bytes are Git LFS pointers."
        ),
        source="safetensors errors",
    ),
    Told(
        code="GP766",
        title="The hub cannot be reached",
        headline="{place}: the hub cannot be reached[: {hub}][ (status {status})]",
        means=(
            "The container has no way to the hub: no DNS, no route, a proxy or certificate it does not know, or the hub "
            "limits it."
        ),
        matters="Whatever is not in the cache cannot be loaded.",
        hint="place the model under model_dir, or set HF_ENDPOINT or the proxy in env: of the inventory",
        do=(
            "Place the model under model_dir on each host, or give the container the proxy or mirror (env: in the inventory)."
        ),
        source="huggingface_hub errors",
    ),
)
