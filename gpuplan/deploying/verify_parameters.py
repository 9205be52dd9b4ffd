"""The container that counts a model's parameters by the image's own classes (`deploying.parameter_script`).

It has no GPU and no network; program, question and configuration travel into it as files, so no host needs the model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuplan.deploying import secrets
from gpuplan.deploying.parameter_script import MODEL, PROGRAM, parameter_request
from gpuplan.deploying.user_words import taken_out
from gpuplan.domain.deployment import ContainerRole
from gpuplan.domain.fleet import Gpu
from gpuplan.domain.labels import DEPLOYMENT, MANAGED, ROLE

DIRECTORY = "/run/gpuplan/parameters"
PREFIX = "gpuplan-helper-parameters-"
_LEFT_OUT = (
    "distributed_executor_backend",
    "lora_modules",
    "load_format",
    "hf_config_path",
    "tokenizer",
    "chat_template",
    "generation_config",
)
"""Arguments that make no parameter of the model, and may name what is not in the container."""
_RUN = f"""\
cd /tmp
v=$(command -v vllm 2>/dev/null)
i=
[ -z "$v" ] || i=$(head -n 1 "$v" 2>/dev/null | tr -d '\\000' | sed -n 's/^#! *\\(\\/[^ ]*python[^ ]*\\).*$/\\1/p')
for p in $i python3 python; do
  command -v "$p" >/dev/null 2>&1 || continue
  exec "$p" {DIRECTORY}/program.py < {DIRECTORY}/request.json
done
echo 'there is no Python in this image' >&2
exit 127
"""
"""The interpreter in the first line of `vllm` is the one that has it."""


def question(
    words: Sequence[str],
    config: Mapping[str, Any],
    *,
    quantization: Mapping[str, Any] | None,
    gpu: Gpu,
    ranks: int,
    tensor_ranks: Sequence[int],
) -> str | None:
    """The question in one line; `words` are those behind `vllm serve MODEL`, `ranks` all of a replica.

    None for a card whose compute capability nobody told: kernels, and padding with them, are chosen by it.
    """
    major, _, minor = (gpu.compute_capability or "").partition(".")
    if not major.isdigit() or gpu.total_bytes is None:
        return None
    kept, _ = taken_out(secrets.split(words)[0], _LEFT_OUT)
    # a model's own code is not in the container; what vLLM serves it has classes of its own for
    files: dict[str, Any] = {
        "config.json": {key: value for key, value in config.items() if key != "auto_map"}
    }
    if quantization is not None:
        files["hf_quant_config.json"] = dict(quantization)
    return parameter_request(
        (MODEL, *kept),
        gpu=gpu.name,
        gpu_bytes=gpu.total_bytes,
        capability=(int(major), int(minor) if minor.isdigit() else 0),
        count=ranks,
        models={MODEL: files},
        tensor_ranks=tensor_ranks,
        integrated=gpu.unified,
    )


def files(line: str) -> dict[str, bytes]:
    """What is put into the container at `DIRECTORY`."""
    return {"program.py": PROGRAM.encode(), "request.json": f"{line}\n".encode()}


def container_body(image_id: str, env: Sequence[tuple[str, str]] = ()) -> Mapping[str, Any]:
    """What `/containers/create` takes; `env`: what decides the shape of a stage."""
    variables = {**dict(env), "NVIDIA_VISIBLE_DEVICES": "void", "NVIDIA_DISABLE_REQUIRE": "1", "HOME": "/tmp"}
    return {
        "Image": image_id,
        "Entrypoint": ["sh", "-c"],
        "Cmd": [_RUN],
        "User": "0:0",
        "Env": [f"{name}={value}" for name, value in sorted(variables.items())],
        "Labels": {MANAGED: "true", DEPLOYMENT: "", ROLE: ContainerRole.HELPER.value},
        "HostConfig": {
            "NetworkMode": "none",
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "5m"}},
        },
    }
