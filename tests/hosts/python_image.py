"""Images with this machine's own Python inside, for programs that stand in for an engine's.

The layer is made once for an interpreter and kept in the temporary directory; the same interpreter gives the same
bytes, so every image made on it shares it.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.hosts.images import VLLM, ImageSpec, link

_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
LIBRARY = f"usr/local/lib/{_VERSION}"
PACKAGES = f"{LIBRARY}/dist-packages"
"""Where an image keeps packages, as Ubuntu's Python does; `site-packages` is a link to it."""
_LEFT_OUT = frozenset(
    {
        *("test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3", "turtledemo", "pydoc_data"),
        *("site-packages", "dist-packages", "config"),
    }
)
_ALSO = (
    *("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libstdc++.so.6", "libgcc_s.so.1"),
    *("libresolv.so.2", "libnss_dns.so.2", "libnss_files.so.2"),
)
"""Beside the C library in every image of a distribution; extension modules from elsewhere ask for them."""
_STAND_IN = Path(__file__).parent / "stand_in"
_LAUNCHER = "#!/usr/bin/env python3\nfrom tests.hosts.stand_in.{module} import main\n\nmain()\n"
_COMPILED = f".cpython-{sys.version_info.major}{sys.version_info.minor}.pyc"
_LIBRARY_PATH = re.compile(r"(?:=> )?(/\S+) \(0x")


def python_layer() -> Path:
    """A tar archive of the interpreter, its standard library without tests, bash, and the libraries they need."""
    stdlib, program = Path(sysconfig.get_path("stdlib")), _interpreter()
    stamp = f"{Path(__file__).read_text()} {program} {program.stat().st_mtime_ns} {sys.version}"
    name = f"gpuplan-python-{os.getuid()}-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.tar"
    path = Path(tempfile.gettempdir()) / name
    if path.exists():
        return path
    with (
        tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{name}.", delete=False) as unfinished,
        tarfile.open(fileobj=unfinished, mode="w") as tar,
    ):
        _write(tar, program, stdlib)
    Path(unfinished.name).replace(path)
    return path


def _interpreter() -> Path:
    return (Path(sys.base_prefix) / "bin" / _VERSION).resolve()


def _write(tar: tarfile.TarFile, program: Path, stdlib: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None, "bash is missing"
    add(tar, program, f"usr/local/bin/{_VERSION}")
    add(tar, Path(bash), "bin/bash")
    link(tar, "usr/local/bin/python3", _VERSION)
    link(tar, "usr/bin/python3", f"/usr/local/bin/{_VERSION}")
    libraries = set(shared_libraries([program, Path(bash)]))
    for path in _modules(stdlib):
        add(tar, path, f"{LIBRARY}/{path.relative_to(stdlib)}")
    extensions = sorted((stdlib / "lib-dynload").glob("*.so"))
    libraries |= set(shared_libraries(extensions))
    (libc,) = (path for path in libraries if path.name == "libc.so.6")
    libraries |= {path for path in (libc.with_name(name) for name in _ALSO) if path.exists()}
    for path in sorted(libraries):
        add(tar, path.resolve(), str(path).lstrip("/"))
    link(tar, f"{LIBRARY}/site-packages", "dist-packages")


def _modules(stdlib: Path) -> Iterator[Path]:
    """Sources and extensions, each source with its compiled form where the interpreter was installed with it."""
    for directory, names, files in os.walk(stdlib):
        names[:] = sorted(name for name in names if name not in _LEFT_OUT and not name.startswith("config-"))
        for name in sorted(files):
            path = Path(directory) / name
            if (
                name.startswith(("xx", "_xx", "_tkinter", "nis."))
                or "_test" in name
                or path.suffix not in {".py", ".so", ".pyc"}
            ):
                continue
            if path.suffix != ".pyc" or name.endswith(_COMPILED):
                yield path


def shared_libraries(programs: Sequence[Path]) -> Iterator[Path]:
    """Shared libraries that the dynamic loader finds for them, the loader included."""
    done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        found = _LIBRARY_PATH.search(line)
        if found is not None:
            yield Path(found[1])


def add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a file as it is, with its time, which compiled modules compare; without this machine's users."""
    entry = tar.gettarinfo(path, name)
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    if entry.isreg():
        with path.open("rb") as file:
            tar.addfile(entry, file)
    else:
        tar.addfile(entry)


def distribution(name: str, version: str) -> tuple[str, str]:
    """What makes an image look as if a package were installed in it."""
    return (
        f"{PACKAGES}/{name}-{version}.dist-info/METADATA",
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    )


def stand_in(
    tag: str = VLLM.tag,
    *,
    version: str = "0.33.0",
    ray: str | None = None,
    marker: str = "",
    architecture: str = "amd64",
) -> ImageSpec:
    """An image that is named and configured as vLLM's own, with the stand-in engine in it.

    `ray` is the version of the stand-in Ray, None for an image without. `marker` makes another image of the same
    contents: a different digest under the same tag.
    """
    files = [
        ("usr/local/bin/vllm", _LAUNCHER.format(module="vllm_program")),
        distribution("vllm", version),
        (f"{PACKAGES}/vllm/__init__.py", f'__version__ = "{version}"\n'),
        *((f"{PACKAGES}/tests/hosts/stand_in/{path.name}", path.read_text()) for path in _sources()),
    ]
    if ray is not None:
        files += [
            ("usr/local/bin/ray", _LAUNCHER.format(module="ray_program")),
            distribution("ray", ray),
            (
                f"{PACKAGES}/ray/__init__.py",
                f"from tests.hosts.stand_in.ray_package import *\n__version__ = {ray!r}\n",
            ),
        ]
    return ImageSpec(
        tag=tag,
        labels=(*VLLM.labels, *((("marker", marker),) if marker else ())),
        env=VLLM.env,
        architecture=architecture,
        entrypoint=VLLM.entrypoint,
        command=(),
        files=tuple(files),
        bases=(python_layer,),
    )


def _sources() -> list[Path]:
    return sorted(_STAND_IN.glob("*.py"))
