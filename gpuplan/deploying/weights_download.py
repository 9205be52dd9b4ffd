"""A container that downloads a model into the hub's cache of its host: what it runs, and what its lines mean.

It takes the files an engine reads and no others (vLLM `weight_utils.download_weights_from_hf`: safetensors before
other formats; Mistral's `consolidated*` only where nothing else is there). What is in the cache is not fetched again,
and what was broken off goes on where it stopped: that is huggingface_hub's own doing.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuplan.deploying.create_body import Body, body
from gpuplan.domain.deployment import SECRETS_DIRECTORY, ContainerRole, ContainerSpec, HubModel, Mount
from gpuplan.domain.labels import DEPLOYMENT, MANAGED, ROLE

CACHE_DIRECTORY = "/gpuplan/huggingface"
"""HF_HOME inside."""
TOKEN = "HF_TOKEN"
PASSED_ON = re.compile(
    r"HF_ENDPOINT|HF_HUB_(?!OFFLINE|CACHE)\w+|HF_XET_\w+|(?i:https?_proxy|no_proxy|all_proxy)"
    r"|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)
"""Variables of `vllm.env` that concern a download."""

PROGRAM = """
import os, sys, threading, time

model, branch, commit, config_only = sys.argv[1:5]
CACHE = os.path.join(os.environ["HF_HOME"], "hub", "models--" + model.replace("/", "--"))
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
TEXTS = (".json", ".txt", ".model", ".tiktoken", ".jinja", ".py", ".vocab", ".merges")

def say(*words):
    print("gpuplan-download", *words, flush=True)

def kind_of(error):
    names = [each.__name__ for each in type(error).__mro__]
    text = str(error)
    status = getattr(getattr(error, "response", None), "status_code", None)
    if getattr(error, "errno", None) in (28, 122) or "No space left" in text or "os error 28" in text: return "full"
    if isinstance(error, PermissionError) or getattr(error, "errno", None) in (13, 30): return "unwritable"
    if "GatedRepoError" in names: return "gated"
    if "RevisionNotFoundError" in names or "EntryNotFoundError" in names and status == 404: return "no_revision"
    if "RepositoryNotFoundError" in names: return "not_found"
    if status in (401, 403): return "denied"
    if status == 429: return "limited"
    if status is None and (isinstance(error, ConnectionError) or any(
        word in name for name in names for word in ("Connect", "Timeout", "Proxy", "SSL", "Network", "LocalEntry", "Offline")
    )): return "network"
    return "other"

def wanted(files):
    names = [name for name in files if name.count("/") <= 1 and not name.startswith((".", "original/", "metal/", "onnx/"))]
    weights = []
    for suffix in WEIGHTS:
        own = [name for name in names if name.endswith(suffix) and "/" not in name]
        weights = [name for name in own if not name.startswith("consolidated")] or own
        if weights: break
    texts = [name for name in names if name.endswith(TEXTS)]
    return sorted(set(texts if config_only == "yes" else texts + weights))

def done():
    total = 0
    for folder, _, names in os.walk(os.path.join(CACHE, "blobs")):
        for name in names:
            try: total += os.stat(os.path.join(folder, name)).st_blocks * 512
            except OSError: pass
    return total

def watch():
    while True:
        say("done", done())
        time.sleep(1)

try:
    from huggingface_hub import HfApi, snapshot_download
except ImportError as error:
    say("failed", "no_library", error)
    sys.exit(3)
try:
    found = HfApi().model_info(model, revision=commit or branch, files_metadata=True)
    files = {each.rfilename: each.size or 0 for each in found.siblings}
    names = wanted(files)
    say("total", sum(files[name] for name in names))
    threading.Thread(target=watch, daemon=True).start()
    escaped = ["".join("[" + c + "]" if c in "*?[" else c for c in name) for name in names]
    snapshot_download(model, revision=commit or branch, allow_patterns=escaped)
    reference = os.path.join(CACHE, "refs", branch)
    if commit and not os.path.exists(reference):
        os.makedirs(os.path.dirname(reference), exist_ok=True)
        with open(reference, "w") as stream: stream.write(commit)
    say("done", done())
    say("complete", found.sha)
except Exception as error:  # whatever it is: who reads the log is told its kind, not a traceback
    say("failed", kind_of(error), " ".join(str(error).split())[:600] or type(error).__name__)
    sys.exit(4)
"""
"""Arguments: id, branch, commit or nothing, `yes` for configuration and tokenizer alone."""


class Ending(StrEnum):
    """How a download ended; the values are the program's words."""

    COMPLETE = "complete"
    FULL = "full"
    UNWRITABLE = "unwritable"
    GATED = "gated"
    DENIED = "denied"
    NOT_FOUND = "not_found"
    NO_REVISION = "no_revision"
    LIMITED = "limited"
    NETWORK = "network"
    NO_LIBRARY = "no_library"
    """The image has no huggingface_hub, or no Python."""
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a download has said up to now."""

    done_bytes: int = 0
    """On the disk for this model, earlier downloads included."""
    total_bytes: int | None = None
    ending: Ending | None = None
    detail: str = ""
    """The library's words, or the commit."""


_LINE = re.compile(r"gpuplan-download (\w+) ?(.*)")


def heard(line: str, before: Told) -> Told:
    """What is known after one more line of the container's output."""
    match = _LINE.match(line.strip())
    if match is None:
        return before
    word, rest = match.groups()
    if word in {"done", "total"} and rest.isdigit():
        done = int(rest) if word == "done" else before.done_bytes
        total = int(rest) if word == "total" else before.total_bytes
        return Told(done_bytes=done, total_bytes=total, ending=before.ending, detail=before.detail)
    if word == "complete":
        ending, detail = Ending.COMPLETE, rest
    elif word == "failed":
        kind, _, detail = rest.partition(" ")
        ending = Ending(kind) if kind in set(Ending) else Ending.OTHER
    else:
        return before
    return Told(
        done_bytes=before.done_bytes, total_bytes=before.total_bytes, ending=ending, detail=detail.strip()
    )


def helper_name(model: HubModel) -> str:
    """Of the container, the same each time: one that an earlier gpuplan left is found by it."""
    words = re.sub(r"[^a-zA-Z0-9_.-]+", "-", model.id)[:60]
    return f"gpuplan-helper-weights-{words}-{hashlib.sha256(model.id.encode()).hexdigest()[:8]}"


def helper_body(
    model: HubModel,
    *,
    host: str,
    image_id: str,
    cache_home: str,
    user: str | None,
    env: Sequence[tuple[str, str]],
    token: bool,
    commit: str | None = None,
    config_only: bool = False,
) -> Body:
    """What `/containers/create` takes: the host's network, its cache and nothing else of the host.

    `user`: `uid:gid` that owns the cache. `env`: `vllm.env`. `token`: a file with HF_TOKEN is put into it.
    """
    variables = {name: value for name, value in env if PASSED_ON.fullmatch(name)}
    variables |= {
        "HF_HOME": CACHE_DIRECTORY,
        "HOME": "/tmp",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NVIDIA_VISIBLE_DEVICES": "void",
        "NVIDIA_DISABLE_REQUIRE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if token:
        variables["HF_TOKEN_PATH"] = f"{SECRETS_DIRECTORY}/{TOKEN}"
    only = "yes" if config_only else "no"
    spec = ContainerSpec(
        host=host,
        name=helper_name(model),
        role=ContainerRole.HELPER,
        image=image_id,
        entrypoint=("python3", "-c", PROGRAM),
        command=(model.id, model.revision or "main", commit or "", only),
        env=tuple(sorted(variables.items())),
        mounts=(Mount(source=cache_home, target=CACHE_DIRECTORY),),
        user=user,
        stop_seconds=5,
    )
    return body(spec, image=image_id, labels=LABELS)


LABELS: Mapping[str, str] = {MANAGED: "true", DEPLOYMENT: "", ROLE: ContainerRole.HELPER.value}
