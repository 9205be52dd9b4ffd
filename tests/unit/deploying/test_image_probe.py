"""What an image says of itself: the script run by a real shell, and its lines read."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpuplan.deploying.image_probe import SCRIPT, UNKNOWN, ImageFacts, parse, probe_body
from gpuplan.domain.labels import MANAGED, ROLE

OFFICIAL = """\
gpuplan-image machine x86_64
gpuplan-image cuda 13.0.1
gpuplan-image command /usr/local/bin/vllm
gpuplan-image python 3.12.11
gpuplan-image asked vllm 0.33.0
gpuplan-image asked ray
gpuplan-image found vllm-0.33.0.dist-info
gpuplan-image end
"""
WITHOUT_PYTHON = """\
gpuplan-image machine aarch64
gpuplan-image cuda
gpuplan-image command
gpuplan-image found vllm-0.33.0.dist-info
gpuplan-image found ray-2.53.0.dist-info
gpuplan-image end
"""
OF_RAY = """\
==========
== CUDA ==
==========
gpuplan-image machine x86_64
gpuplan-image cuda 12.9.1
gpuplan-image command
gpuplan-image python 3.11.9
gpuplan-image asked vllm
gpuplan-image asked ray 2.60.0
gpuplan-image end
"""


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (
            OFFICIAL,
            ImageFacts(
                vllm_version="0.33.0",
                ray=False,
                python_version="3.12.11",
                architecture="x86_64",
                cuda_version="13.0.1",
                vllm_command=True,
            ),
        ),
        (
            WITHOUT_PYTHON,
            ImageFacts(
                vllm_version="0.33.0",
                ray_version="2.53.0",
                ray=True,
                architecture="aarch64",
                vllm_command=False,
            ),
        ),
        (
            OF_RAY,
            ImageFacts(
                ray_version="2.60.0",
                ray=True,
                python_version="3.11.9",
                architecture="x86_64",
                cuda_version="12.9.1",
                vllm_command=False,
            ),
        ),
        ("", UNKNOWN),
        ("sh: not found\ngpuplan-image\ngpuplan-image asked", UNKNOWN),
    ],
)
def test_lines_are_read(text: str, facts: ImageFacts) -> None:
    assert parse(text) == facts


def run(environment: dict[str, str]) -> ImageFacts:
    done = subprocess.run(
        ["/bin/sh", "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.rstrip().endswith("gpuplan-image end")
    return parse(done.stdout)


def test_the_interpreter_of_the_command_is_asked(tmp_path: Path) -> None:
    """A second Python on the PATH knows nothing of vLLM."""
    home = tmp_path / "venv" / "bin"
    home.mkdir(parents=True)
    for name, version in (("vllm", "0.12.1+cu130"), ("ray", "2.54.0")):
        folder = tmp_path / "packages" / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    python = home / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/packages exec {sys.executable} "$@"\n')
    (home / "vllm").write_text(f"#!{python}\nimport vllm\n")
    for file in home.iterdir():
        file.chmod(0o755)
    other = tmp_path / "bin"
    other.mkdir()
    (other / "python3").symlink_to(sys.executable)
    path = f"{other}:{home}:/usr/bin:/bin"
    facts = run({"PATH": path, "CUDA_VERSION": "13.0.1"})
    assert (facts.vllm_version, facts.ray_version) == ("0.12.1+cu130", "2.54.0")
    assert facts.python_version == sys.version.split()[0]
    assert (facts.cuda_version, facts.vllm_command) == ("13.0.1", True)


def test_an_image_with_next_to_nothing_in_it(tmp_path: Path) -> None:
    facts = run({"PATH": str(tmp_path)})
    assert (facts.vllm_version, facts.python_version, facts.vllm_command) == (None, None, None)


def test_the_container_is_ours_and_has_neither_network_nor_gpus() -> None:
    body = probe_body("sha256:0")
    assert (body["Labels"][MANAGED], body["Labels"][ROLE]) == ("true", "helper")
    assert body["HostConfig"]["NetworkMode"] == "none"
    assert "DeviceRequests" not in body["HostConfig"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in body["Env"]
