"""A rung put into words: what was found with its numbers, the evidence, and the command that helps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuplan.planning.preflight_report import Rung
from gpuplan.present import check_across_words, check_resource_words
from gpuplan.present.findings import word
from gpuplan.present.host_findings import TOOLKIT
from gpuplan.present.numbers import listed
from gpuplan.present.unreached import way_back
from gpuplan.present.words import Words
from gpuplan.units import plural

"""Headline, because, fix."""
Figures = Mapping[str, Any]

UPGRADE = "install a newer NVIDIA driver on the host and reboot (Ubuntu: sudo ubuntu-drivers install --gpgpu)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A rung with its sentences."""

    headline: str
    because: tuple[str, ...]
    fix: str | None


def tell(rung: Rung, host: str | None = None) -> Told:
    """The words of a rung; where states of the host decided it, theirs, the worst first."""
    if rung.facts and rung.reason in _OF_STATES:
        findings = [word(replace(fact, subject={"host": host, **fact.subject})) for fact in rung.facts]
        first = findings[0]
        others = tuple(finding.headline for finding in findings[1:])
        return Told(
            headline=f"{first.headline.removeprefix(f'{host}: ')} [{first.code}]",
            because=(*first.because, *others),
            fix=first.hint,
        )
    headline, because, fix = WORDS[rung.reason](rung.figures)
    return Told(headline=headline, because=because, fix=fix)


def _plain(headline: str, fix: str | None = None) -> Callable[[Figures], Words]:
    return lambda _: (headline, (), fix)


def _reached(figures: Figures) -> Words:
    return (f"reached as {figures['user']}" if figures.get("user") else "reached", (), None)


def _unreached(figures: Figures) -> Words:
    if "stage" not in figures:
        return ("the host was not reached", (), None)
    stage = str(figures["stage"])
    headline, fix = way_back(stage, figures.get("address"))
    return f"{headline} ({stage})", (str(figures["detail"]),), fix


def _docker(figures: Figures) -> Words:
    by = {"dial-stdio": " through `docker system dial-stdio`"}.get(str(figures["transport"]), "")
    return (f"Docker {figures['version']} answers without sudo{by}", (), None)


def _gpus(figures: Figures) -> Words:
    names = listed([str(name) for name in figures["names"]])
    left = f"; {figures['excluded']} excluded by the inventory" if figures["excluded"] else ""
    return (f"{plural(figures['count'], 'GPU')}: {names}{left}", (), None)


def _sound(figures: Figures) -> Words:
    return (f"no fault reported of {plural(figures['count'], 'GPU')}", (), None)


def _toolkit_registered(figures: Figures) -> Words:
    ways = [*(f"runtime {name}" for name in figures["runtimes"] if "nvidia" in name)]
    if figures["cdi"]:
        ways.append(plural(figures["cdi"], "CDI device"))
    return (f"GPUs can be given to containers ({listed(ways) or 'registered with Docker'})", (), None)


def _toolkit_unknown(_: Figures) -> Words:
    return (
        "whether containers get GPUs is not known",
        ("no NVIDIA runtime and no CDI device is registered; a hook alone does not show",),
        "run a container to see: gpuplan check --run-gpu-test",
    )


def _test_saw_all(figures: Figures) -> Words:
    return (
        f"a container of {figures['image']} saw {figures['seen']} of {plural(figures['expected'], 'GPU')}",
        (),
        None,
    )


def _test_saw_others(figures: Figures) -> Words:
    headline, _, _ = _test_saw_all(figures)
    return (
        headline,
        ("the host's own tool lists more than the container was given",),
        f"generate the device list anew (sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml) or: {TOOLKIT}",
    )


def _test_without_tool(figures: Figures) -> Words:
    return (
        f"a container with the GPUs started; {figures['image']} has no nvidia-smi to count them",
        (str(figures["detail"]),),
        "the container toolkit puts nvidia-smi into containers with NVIDIA_DRIVER_CAPABILITIES=utility: is it in the image?",
    )


def _test_hung(figures: Figures) -> Words:
    return (
        f"a container with the GPUs did not end within {figures['seconds']:.0f} s",
        (),
        (
            "run by hand: docker run --rm --network none --gpus all --entrypoint nvidia-smi "
            f"{figures['image']} -L; then look at sudo dmesg | grep -i nvrm"
        ),
    )


def _test_failed(figures: Figures) -> Words:
    return ("a container with the GPUs does not start", (f"Docker said: {figures['detail']}",), TOOLKIT)


def _test_needs_image(figures: Figures) -> Words:
    return (
        f"no container was run: {figures['image']} is not on the host",
        (),
        f"docker pull {figures['image']}, then gpuplan check --run-gpu-test",
    )


def _driver_fits(figures: Figures) -> Words:
    return (f"driver {figures['driver']} serves CUDA {figures['cuda']} (needs {figures['wanted']})", (), None)


def _driver_minor(figures: Figures) -> Words:
    return (
        f"driver {figures['driver']} serves CUDA {figures['cuda']} only by minor-version compatibility",
        (
            (
                f"CUDA {figures['cuda']} came with driver {figures['wanted']}; from {figures['floor']} on its programs run, "
                "those that compile PTX at run time excepted"
            ),
        ),
        UPGRADE,
    )


def _driver_forward(figures: Figures) -> Words:
    return (
        f"driver {figures['driver']} is older than CUDA {figures['cuda']} needs ({figures['floor']})",
        ("data-center GPUs run it if the image brings NVIDIA's forward-compatibility package (cuda-compat)",),
        UPGRADE,
    )


def _driver_too_old(figures: Figures) -> Words:
    return (
        (
            f"driver {figures['driver']} is too old for CUDA {figures['cuda']} in {figures['image']}: it needs "
            f"{figures['floor']}"
        ),
        ("the engine would end with: The NVIDIA driver on your system is too old",),
        f"{UPGRADE}; or take an image with an older CUDA (--image)",
    )


def _driver_unknown(figures: Figures) -> Words:
    found = figures.get("driver")
    return (
        f"whether driver {found!r} serves CUDA {figures['cuda']} is not known"
        if found
        else "the driver version is not known",
        (),
        None,
    )


def _cuda_unknown(figures: Figures) -> Words:
    return (
        f"which CUDA is in {figures['image']} is not known",
        (),
        f"docker pull {figures['image']} on one host: its environment tells",
    )


def _architecture_same(figures: Figures) -> Words:
    return (f"image and host are {figures['host']}", (), None)


def _architecture_differs(figures: Figures) -> Words:
    arm = figures["host"] == "aarch64"
    wanted = "arm64" if arm else "amd64"
    return (
        f"the image is built for {figures['built_for']}, the host is {figures['host']}",
        ("its programs end with: exec format error",),
        f"docker pull --platform linux/{wanted} {figures['image']}; where the tag has none, take another image (--image)",
    )


def _architecture_unsure(figures: Figures) -> Words:
    return (
        f"the host is {figures['host']}, and older images are built for amd64 alone",
        (),
        f"see what the tag offers: docker manifest inspect {figures['image']}",
    )


_OF_STATES = frozenset({"state", "no_gpu", "toolkit_missing"})
"""Reasons whose words are those of the host's states, where there are any."""

WORDS: Mapping[str, Callable[[Figures], Words]] = {
    "local": _plain("this machine, without SSH"),
    "reached": _reached,
    "unreached": _unreached,
    "complete": _plain("every question was answered"),
    "docker_answers": _docker,
    "docker_silent": _plain(
        "Docker did not answer",
        "install Docker Engine (https://docs.docker.com/engine/install), then: sudo usermod -aG docker USER",
    ),
    "needs_docker": _plain("Docker is needed first"),
    "needs_gpu": _plain("a GPU is needed first"),
    "gpus_seen": _gpus,
    "gpus_excluded": _plain("every GPU is excluded", "shorten `exclude_gpus:` of the host in the inventory"),
    "no_gpu": _plain("no GPU found", "is the driver installed? On the host: nvidia-smi, amd-smi or npu-smi"),
    "gpus_sound": _sound,
    "not_nvidia": _plain("no NVIDIA GPU: nothing of NVIDIA's is needed"),
    "toolkit_registered": _toolkit_registered,
    "toolkit_missing": _plain("Docker cannot give GPUs to containers", TOOLKIT),
    "toolkit_unknown": _toolkit_unknown,
    "test_saw_all": _test_saw_all,
    "test_saw_others": _test_saw_others,
    "test_without_tool": _test_without_tool,
    "test_hung": _test_hung,
    "test_failed": _test_failed,
    "test_needs_image": _test_needs_image,
    "driver_fits": _driver_fits,
    "driver_minor": _driver_minor,
    "driver_forward": _driver_forward,
    "driver_too_old": _driver_too_old,
    "driver_unknown": _driver_unknown,
    "cuda_unknown": _cuda_unknown,
    "architecture_same": _architecture_same,
    "architecture_differs": _architecture_differs,
    "architecture_unsure": _architecture_unsure,
    "architecture_unknown": _plain("the host's architecture is not known"),
    **check_resource_words.WORDS,
    **check_across_words.WORDS,
}
