"""Container images made from files, for engines that reach no registry."""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

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
    """An image as an engine lists it; inside is busybox."""

    tag: str
    labels: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    architecture: str = "amd64"
    """Go's name. The busybox inside is this machine's whatever it says."""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ("sh",)
    files: tuple[tuple[str, str], ...] = ()
    """Path without a leading slash, and text."""


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
    layer = _layer(spec)
    config = {
        "architecture": spec.architecture,
        "os": "linux",
        "created": "2026-11-01T00:00:00Z",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
            + [f"{name}={value}" for name, value in spec.env],
            "Labels": dict(spec.labels),
            "Entrypoint": list(spec.entrypoint) or None,
            "Cmd": list(spec.command) or None,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": "2026-11-01T00:00:00Z", "created_by": "busybox"}],
    }
    text = json.dumps(config).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [spec.tag], "Layers": ["layer.tar"]}]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _put(tar, name, text, 0o644)
        _put(tar, "layer.tar", layer, 0o644)
        _put(tar, "manifest.json", json.dumps(manifest).encode(), 0o644)
    return buffer.getvalue()


def _layer(spec: ImageSpec) -> bytes:
    busybox = shutil.which("busybox")
    assert busybox is not None, "busybox is missing (Debian package busybox-static)"
    present = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for directory in ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "usr", "usr/bin"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        _put(tar, "bin/busybox", Path(busybox).read_bytes(), 0o755)
        for applet in _APPLETS:
            if applet in present:
                entry = tarfile.TarInfo(f"bin/{applet}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(entry)
        _put(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644)
        for path, text in spec.files:
            _put(tar, path, text.encode(), 0o644)
    return buffer.getvalue()


def _put(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
