"""An image with a real Ray beside the stand-in engine.

Ray comes from the package index this machine is set up for; without one, and without it installed before, there is no
such image and the tests that need it skip.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tests.hosts.images import ImageSpec
from tests.hosts.python_image import PACKAGES, add, stand_in

VERSION = "2.60.0"
_LEFT_OUT = (
    *("ray/jars", "ray/rllib", "ray/tune", "ray/train", "ray/llm", "ray/data", "ray/dashboard/client", "bin"),
    *(
        "ray/core/libjemalloc.so",
        "ray/cpp",
        "ray/autoscaler/aws",
        "ray/autoscaler/gcp",
        "ray/autoscaler/azure",
    ),
)
"""What starting nodes and asking for them does not take: 200 MB become 150."""
_PROGRAM = "#!/usr/bin/env python3\nimport sys\nfrom ray.scripts.scripts import main\n\nsys.exit(main())\n"


class NoRay(Exception):
    """It cannot be installed here, in pip's words."""


@lru_cache(maxsize=1)
def ray_layer() -> Path:
    """A tar archive of Ray and what it imports, made once. Raises NoRay."""
    stamp = f"{Path(__file__).read_text()} {sys.version}"
    name = f"gpuplan-ray-{os.getuid()}-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.tar"
    path = Path(tempfile.gettempdir()) / name
    if path.exists():
        return path
    with tempfile.TemporaryDirectory() as scratch:
        _install(Path(scratch))
        with tarfile.open(f"{path}.{os.getpid()}", "w") as tar:
            _write(tar, Path(scratch))
    Path(f"{path}.{os.getpid()}").replace(path)
    return path


def _install(target: Path) -> None:
    words = ["-m", "pip", "install", "--quiet", "--no-input", "--only-binary=:all:", "--target", str(target)]
    done = subprocess.run(
        [sys.executable, *words, f"ray[client]=={VERSION}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode:
        raise NoRay(f"pip cannot install ray=={VERSION}: {done.stderr.strip()[-300:]}")
    for name in _LEFT_OUT:
        shutil.rmtree(target / name, ignore_errors=True)


def _write(tar: tarfile.TarFile, target: Path) -> None:
    for path in sorted(target.rglob("*")):
        if path.is_file() and path.suffix != ".map":
            add(tar, path, f"{PACKAGES}/{path.relative_to(target)}")


def with_ray(tag: str = "vllm/vllm-openai:v0.33.0-ray") -> ImageSpec:
    """The stand-in engine's image with Ray itself. Raises NoRay."""
    ray_layer()
    plain = stand_in(tag)
    return replace(
        plain,
        bases=(*plain.bases, ray_layer),
        files=(*plain.files, ("usr/local/bin/ray", _PROGRAM)),
    )
