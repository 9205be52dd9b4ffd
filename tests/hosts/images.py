"""Container images made from files, for engines that reach no registry."""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

_APPLETS = (
    *(
        "ash",
        "awk",
        "cat",
        "chmod",
        "cp",
        "cut",
        "date",
        "df",
        "echo",
        "env",
        "false",
        "grep",
        "head",
        "hostname",
    ),
    *(
        "id",
        "ip",
        "kill",
        "ls",
        "mkdir",
        "nc",
        "od",
        "printenv",
        "ps",
        "rm",
        "sed",
        "sh",
        "sleep",
        "sort",
        "stat",
    ),
    *("tail", "test", "timeout", "touch", "tr", "true", "uname", "wc", "which"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpec:
    """An image as an engine lists it; inside is busybox, and what `bases` add."""

    tag: str
    labels: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    architecture: str = "amd64"
    """Go's name. The busybox inside is this machine's whatever it says."""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ("sh",)
    files: tuple[tuple[str, str], ...] = ()
    """Path without a leading slash, and text; what lies in a `bin` directory may be run."""
    bases: tuple[Callable[[], Path], ...] = ()
    """Layers between busybox and `files`: each makes a tar archive, or finds it made, and tells where."""


VLLM = ImageSpec(
    tag="vllm/vllm-openai:v0.33.0",
    labels=(
        ("maintainer", "NVIDIA CORPORATION <cudatools@nvidia.com>"),
        ("org.opencontainers.image.version", "22.04"),
    ),
    env=(
        ("CUDA_VERSION", "12.9.1"),
        ("NVIDIA_VISIBLE_DEVICES", "all"),
        ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
        ("NVIDIA_REQUIRE_CUDA", "cuda>=12.9 brand=unknown,driver>=570,driver<571"),
        ("VLLM_USAGE_SOURCE", "production-docker-image"),
    ),
    entrypoint=("vllm", "serve"),
    command=(),
    files=(
        (
            "usr/local/lib/python3.12/dist-packages/vllm-0.33.0.dist-info/METADATA",
            "Name: vllm\nVersion: 0.33.0\n",
        ),
        (
            "usr/local/lib/python3.12/dist-packages/ray-2.53.0.dist-info/METADATA",
            "Name: ray\nVersion: 2.53.0\n",
        ),
    ),
)
"""Named and configured as the published image is, without its 20 GB."""


def archive(spec: ImageSpec) -> bytes:
    """What `docker load` takes; the same spec gives the same image id."""
    return _built(spec)[1]


def image_id(spec: ImageSpec) -> str:
    """The id an engine has the image under."""
    return _built(spec)[0]


@lru_cache(maxsize=4)
def _built(spec: ImageSpec) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    return write_archive(spec, buffer), buffer.getvalue()


def write_archive(spec: ImageSpec, file: IO[bytes]) -> str:
    """Write what `docker load` takes, without holding it; the id the image will have."""
    layers: list[bytes | Path] = [_busybox(), *(base() for base in spec.bases), _files(spec)]
    text = json.dumps(_configuration(spec, [_digest(layer) for layer in layers])).encode()
    digest = hashlib.sha256(text).hexdigest()
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": f"{digest}.json", "RepoTags": [spec.tag], "Layers": names}]
    with tarfile.open(fileobj=file, mode="w") as tar:
        put(tar, f"{digest}.json", text, 0o644)
        for layer, member in zip(layers, names, strict=True):
            if isinstance(layer, Path):
                tar.add(layer, member)
            else:
                put(tar, member, layer, 0o644)
        put(tar, "manifest.json", json.dumps(manifest).encode(), 0o644)
    return f"sha256:{digest}"


def _digest(layer: bytes | Path) -> str:
    if isinstance(layer, bytes):
        return f"sha256:{hashlib.sha256(layer).hexdigest()}"
    with layer.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _configuration(spec: ImageSpec, layers: Sequence[str]) -> dict[str, object]:
    made = "2026-11-01T00:00:00Z"
    return {
        "architecture": spec.architecture,
        "os": "linux",
        "created": made,
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
            + [f"{name}={value}" for name, value in spec.env],
            "Labels": dict(spec.labels),
            "Entrypoint": list(spec.entrypoint) or None,
            "Cmd": list(spec.command) or None,
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": list(layers),
        },
        "history": [{"created": made, "created_by": "test hosts"} for _ in layers],
    }


def _busybox() -> bytes:
    busybox = shutil.which("busybox")
    assert busybox is not None, "busybox is missing (Debian package busybox-static)"
    present = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for directory in ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "usr/bin"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755
            tar.addfile(entry)
        put(tar, "bin/busybox", Path(busybox).read_bytes(), 0o755)
        for applet in _APPLETS:
            if applet in present:
                link(tar, f"bin/{applet}", "busybox")
        link(tar, "usr/bin/env", "/bin/busybox")
        put(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644)
    return buffer.getvalue()


def _files(spec: ImageSpec) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, text in spec.files:
            put(tar, path, text.encode(), 0o755 if Path(path).parent.name == "bin" else 0o644)
    return buffer.getvalue()


def put(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    """Add a file."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def link(tar: tarfile.TarFile, name: str, target: str) -> None:
    """Add a symbolic link."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)
