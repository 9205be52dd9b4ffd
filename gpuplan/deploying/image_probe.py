"""What is inside an image, asked of a container of it that has no network and no GPUs.

What labels and variables tell without a container is read by `probing.docker_images`; this is what they leave open:
the versions that are really installed, and whether the command is there. Unknown is None, never a guess.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuplan.domain.deployment import ContainerRole
from gpuplan.domain.labels import DEPLOYMENT, MANAGED, ROLE

SECONDS = 60.0
"""A first start of an image on a slow disk, and a Python that is read for the first time."""

_PYTHON = """
import sys
print("gpuplan-image python " + sys.version.split()[0])
try:
    from importlib.metadata import version, PackageNotFoundError
except ImportError:
    sys.exit(3)
for name in ("vllm", "ray"):
    try: print("gpuplan-image asked " + name + " " + str(version(name)))
    except PackageNotFoundError: print("gpuplan-image asked " + name)
"""
_SCRIPT = """\
say() { printf 'gpuplan-image %s\\n' "$*"; }
say machine "$(uname -m 2>/dev/null)"
say cuda "$CUDA_VERSION"
v=$(command -v vllm 2>/dev/null)
say command "$v"
i=
[ -z "$v" ] || i=$(head -n 1 "$v" 2>/dev/null | tr -d '\\000' | sed -n 's/^#! *\\(\\/[^ ]*python[^ ]*\\).*$/\\1/p')
for p in $i python3 python; do
  command -v "$p" >/dev/null 2>&1 || continue
  told=$("$p" -c '@python@' 2>/dev/null) || continue
  printf '%s\\n' "$told"
  case "$told" in *'asked vllm '*) break ;; esac
done
for d in /usr/local/lib/python3*/*-packages /usr/lib/python3*/*-packages /usr/lib/python3/dist-packages \\
    /opt/*/lib/python3*/site-packages /opt/lib/python3*/site-packages /*/.venv/lib/python3*/site-packages; do
  for f in "$d"/vllm-[0-9]*.dist-info "$d"/ray-[0-9]*.dist-info; do
    [ -d "$f" ] && say found "${f##*/}"
  done
done
say end
"""
SCRIPT = _SCRIPT.replace("@python@", _PYTHON)
"""For `sh -c` in the image. The interpreter in the first line of `vllm` is the one that has it."""

_LINE = re.compile(r"^gpuplan-image (\w+) ?(.*?)\s*$", re.MULTILINE)
_DIST = re.compile(r"(vllm|ray)-([^-\s]+)\.dist-info")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What an image said of itself; None where it did not."""

    vllm_version: str | None = None
    """As installed, a local part included: `0.11.0+cu129`."""
    ray_version: str | None = None
    ray: bool | None = None
    """Whether Ray is installed."""
    python_version: str | None = None
    """To the patch level: the nodes of a Ray cluster must agree on it."""
    architecture: str | None = None
    """`x86_64`, `aarch64`."""
    cuda_version: str | None = None
    """CUDA_VERSION of its environment."""
    vllm_command: bool | None = None
    """Whether `vllm` is on its PATH."""


UNKNOWN = ImageFacts()
"""An image without a shell."""


def probe_body(image_id: str) -> Mapping[str, Any]:
    """What `/containers/create` takes for the container that answers.

    NVIDIA_VISIBLE_DEVICES keeps a default runtime of NVIDIA's from handing it GPUs and from refusing to start it on
    an older driver (nvidia-container-toolkit: `void`).
    """
    return {
        "Image": image_id,
        "Entrypoint": ["sh", "-c"],
        "Cmd": [SCRIPT],
        "Env": ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_DISABLE_REQUIRE=1"],
        "Labels": {MANAGED: "true", DEPLOYMENT: "", ROLE: ContainerRole.HELPER.value},
        "HostConfig": {
            "NetworkMode": "none",
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m"}},
        },
    }


def parse(text: str) -> ImageFacts:
    """The facts in what the script printed; lines of others are left out."""
    words: dict[str, str] = {}
    asked: dict[str, str] = {}
    found: dict[str, str] = {}
    for key, value in _LINE.findall(text):
        if key == "asked":
            name, _, version = value.partition(" ")
            asked[name] = asked.get(name) or version
        elif key == "found":
            match = _DIST.fullmatch(value)
            if match is not None:
                found.setdefault(match.group(1), match.group(2))
        elif value:
            words[key] = value
    vllm = asked.get("vllm") or found.get("vllm")
    ray = asked.get("ray") or found.get("ray")
    told = bool(asked.get("vllm")) or "vllm" in found or "ray" in asked
    return ImageFacts(
        vllm_version=vllm or None,
        ray_version=ray or None,
        ray=True if ray else False if told else None,
        python_version=words.get("python"),
        architecture=words.get("machine"),
        cuda_version=words.get("cuda"),
        vllm_command="command" in words if "machine" in words else None,
    )
