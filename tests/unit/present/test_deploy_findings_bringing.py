"""Words about images and weights on their way to hosts: each from the figures a real case has."""

from typing import Any

import pytest

from gpuplan.domain.fact import Fact, Severity
from gpuplan.present.deploy_findings_bringing import WORDS
from gpuplan.present.deploy_rulebook_bringing import PAGES
from gpuplan.present.findings import CODES, word
from gpuplan.present.rulebook import PAGES as ALL_PAGES
from gpuplan.units import GIB

IMAGE = "vllm/vllm-openai:v0.33.0"
SHARD = "model-00003-of-00017.safetensors"
HUB = {
    "model": "org/model",
    "revision": None,
    "path": "/home/ada/.cache/huggingface/hub",
    "token": False,
    "detail": "403 Client Error",
    "done_bytes": 3 * GIB,
    "total_bytes": 9 * GIB,
}
LOCAL = {"path": "/data/models/m", "kind": "directory"}

CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("GP830", {"image": IMAGE, "detail": "no answer"}, "connection was lost", "gpuplan probe"),
    ("GP831", {"image": IMAGE, "registry": False}, "is missing", "--image-source auto"),
    ("GP831", {"image": IMAGE, "holder": "h1"}, "is missing", "docker pull"),
    ("GP831", {"image": IMAGE, "archive": "x.tar"}, "was not in it", "tar -xOf x.tar"),
    (
        "GP832",
        {"image": IMAGE, "id": "sha256:" + "b" * 64, "wanted": "sha256:" + "a" * 64, "holder": "h1"},
        "another build there (bbbbbbbbbbbb) than on h1 (aaaaaaaaaaaa)",
        "docker images --digests",
    ),
    (
        "GP833",
        {"image": IMAGE, "image_architecture": "x86_64", "host_architecture": "aarch64"},
        "is made for x86_64",
        "--image",
    ),
    (
        "GP833",
        {"image": IMAGE, "host_architecture": "aarch64", "detail": "no matching manifest for linux/arm64/v8"},
        "is not published for it",
        "--image",
    ),
    (
        "GP834",
        {
            "image": IMAGE,
            "needed_bytes": 30 * GIB,
            "free_bytes": 12 * GIB,
            "path": "/var/lib/docker",
            "device": "sda",
        },
        "takes 30.00 GiB, /var/lib/docker (sda) has 12.00 GiB free",
        "docker image prune",
    ),
    (
        "GP835",
        {"image": IMAGE, "path": "/var/lib/docker", "device": "sda", "detail": "no space left on device"},
        "/var/lib/docker (sda) got full",
        "df -h /var/lib/docker",
    ),
    ("GP836", {"image": IMAGE, "detail": "manifest unknown"}, "does not have " + IMAGE, "docker save"),
    ("GP837", {"image": IMAGE, "detail": "denied"}, "refuses " + IMAGE, "docker login"),
    (
        "GP838",
        {"image": IMAGE, "cause": "no_registry", "detail": "i/o timeout"},
        "cannot be pulled",
        "--image-source fleet",
    ),
    ("GP838", {"image": IMAGE, "cause": "rate_limited", "detail": "429"}, "cannot be pulled", "docker login"),
    (
        "GP839",
        {"image": IMAGE, "source": "h1", "at_source": "h1", "detail": "bad layer"},
        "from h1",
        "docker save",
    ),
    (
        "GP840",
        {"model": "/data/m", "looked": ("/data/m", "/m/m"), "have": ("h1",)},
        "/data/m is not there",
        "rsync",
    ),
    ("GP840", {"model": "/data/m", "looked": ("/data/m",), "have": ()}, "/data/m is not there", "model_dir"),
    (
        "GP841",
        {**LOCAL, "missing": (SHARD, "b"), "have": ("h1",), "broken": (SHARD,)},
        "2 files of the model missing in /data/models/m",
        "rsync -aL h1:",
    ),
    (
        "GP841",
        {**LOCAL, "missing": (SHARD,), "have": (), "broken": ()},
        f"1 file of the model missing in /data/models/m: {SHARD}",
        "hf download",
    ),
    (
        "GP842",
        {**LOCAL, "file": SHARD, "bytes": 4 * GIB, "expected_bytes": 5 * GIB, "have": "h1"},
        "1.00 GiB short",
        "rsync -aL h1:",
    ),
    (
        "GP842",
        {**LOCAL, "file": SHARD, "bytes": 6, "expected_bytes": 5, "have": None},
        "has 6 bytes, 5 are right",
        "download it again",
    ),
    (
        "GP842",
        {**LOCAL, "file": SHARD, "bytes": 134, "expected_bytes": None, "pointer": True},
        "holds no weights",
        "git lfs pull",
    ),
    (
        "GP843",
        {**LOCAL, "files": ("config.json",), "other": "h1", "revision": "abc", "other_revision": "def"},
        "config.json of the model differ from those on h1",
        "MODEL@COMMIT",
    ),
    ("GP843", {**LOCAL, "files": (SHARD,), "outside": True}, "lead out of it", "cp -rL"),
    (
        "GP844",
        {**HUB, "needed_bytes": 60 * GIB, "free_bytes": 12 * GIB, "device": "sdb", "detail": None},
        "60.00 GiB of org/model are still to come",
        "huggingface_home",
    ),
    (
        "GP845",
        {**HUB, "device": "sdb", "free_bytes": 0},
        "got full at 3.00 GiB of 9.00 GiB of org/model",
        "df -h",
    ),
    ("GP846", {**HUB, "ending": "gated"}, "org/model without a token", "HF_TOKEN"),
    (
        "GP846",
        {**HUB, "ending": "denied", "token": True},
        "org/model to this token",
        "huggingface.co/org/model",
    ),
    ("GP847", {**HUB, "ending": "not_found"}, "does not have org/model", "HF_TOKEN"),
    (
        "GP847",
        {**HUB, "ending": "no_revision", "revision": "v2"},
        "no such revision of org/model@v2",
        "huggingface.co",
    ),
    ("GP848", {**HUB, "ending": "network"}, "was not downloaded", "HTTPS_PROXY"),
    ("GP848", {**HUB, "ending": "incomplete"}, "was not downloaded whole", "hf download"),
    ("GP848", {**HUB, "ending": "other"}, "was not downloaded", "deploy again"),
    (
        "GP849",
        {"path": "/data/cache", "user": "ada", "detail": "Permission denied"},
        "ada cannot write to /data/cache",
        "sudo install -d -o ada",
    ),
    ("GP849", {**HUB, "ending": "unwritable"}, "cannot write to /home/ada", "sudo install"),
]


def test_every_code_is_here_and_has_words_and_a_page() -> None:
    assert {code for code, _, _, _ in CASES} == set(WORDS) == {page.code for page in PAGES}
    assert set(WORDS) == {f"GP{number}" for number in range(830, 850)}
    assert set(WORDS) <= set(CODES) & set(ALL_PAGES)


@pytest.mark.parametrize(("code", "figures", "headline", "hint"), CASES)
def test_a_finding_names_its_host_its_figures_and_a_way_out(
    code: str, figures: dict[str, Any], headline: str, hint: str
) -> None:
    finding = word(Fact(code=code, severity=Severity.ERROR, subject={"host": "h2"}, figures=figures))
    assert finding.headline.startswith("h2")
    assert headline in finding.headline
    assert hint in str(finding.hint)
    assert "None" not in f"{finding.headline}{finding.because}{finding.hint}"
    if figures.get("detail"):
        assert any(figures["detail"] in reason for reason in finding.because)


@pytest.mark.parametrize("code", sorted(WORDS))
def test_missing_figures_leave_a_gap_and_never_a_finding_unsaid(code: str) -> None:
    finding = word(Fact(code=code, severity=Severity.ERROR, subject={}, figures={}))
    assert finding.headline
    assert finding.hint
