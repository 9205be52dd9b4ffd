"""Directories and files of the host that a container sees: the model, the hub's cache, compile caches, what arguments name.

A path in an argument is a path on the hosts that run it (S2.10) and has the same name inside.
"""

import json
import re
from collections.abc import Iterable

from gpuplan.deploying.addresses import Place
from gpuplan.deploying.request import CompileRequest
from gpuplan.domain.deployment import DirectoryModel, Mount
from gpuplan.domain.inventory import LOCAL
from gpuplan.domain.workload import EngineArguments

HUB_INSIDE = "/gpuplan/huggingface"
CACHE_INSIDE = "/gpuplan/cache"
_FILES = (
    "allowed_local_media_path",
    "chat_template",
    "config",
    "generation_config",
    "hf_config_path",
    "reasoning_parser_plugin",
    "tokenizer",
    "tool_parser_plugin",
)
"""Arguments whose value may be a path that is read."""
_OF_THE_IMAGE = ("/vllm-workspace/", "/app/vllm/", "/usr/local/lib/python3", "/opt/venv/")
"""Where images keep their own examples and plug-ins: such paths are not the host's."""
_SLUG = re.compile(r"[^A-Za-z0-9_.-]+")


def mounts_of(request: CompileRequest, place: Place) -> tuple[Mount, ...]:
    """Everything a container of the host mounts, sorted by where it is seen; each place once."""
    settings = request.inventory.vllm
    mounts = [
        Mount(
            source=f"{expanded(request, place, settings.cache_dir)}/{_SLUG.sub('_', request.image)}",
            target=CACHE_INSIDE,
            make=True,
        )
    ]
    if isinstance(request.model, DirectoryModel) and not request.model.carried:
        mounts.append(
            Mount(source=request.model.paths[place.name], target=request.model.inside, read_only=True)
        )
    if uses_hub(request):
        source = expanded(request, place, settings.huggingface_home)
        mounts.append(Mount(source=source, target=HUB_INSIDE, make=True))
    mounts += _named(request)
    by_target = {mount.target: mount for mount in reversed(mounts)}
    return tuple(by_target[target] for target in sorted(by_target))


def uses_hub(request: CompileRequest) -> bool:
    """Whether the model, its draft, tokenizer or an adapter is named by an id of the hub."""
    named = [path for path in _paths(request.workload.engine) if not path.startswith("/")]
    return not isinstance(request.model, DirectoryModel) or any(path.count("/") == 1 for path in named)


def expanded(request: CompileRequest, place: Place, path: str) -> str:
    """A path of the inventory on a host, `~` being the login's home there."""
    path = path.rstrip("/") or "/"
    if path != "~" and not path.startswith("~/"):
        return path
    return home_of(request, place) + path[1:]


def home_of(request: CompileRequest, place: Place) -> str:
    """As told, else from where the probe found the hub's cache, else /root or /home/USER."""
    told = request.homes.get(place.name)
    if told:
        return told.rstrip("/")
    tail = request.inventory.vllm.huggingface_home.rstrip("/").removeprefix("~")
    for disk in place.host.facts.disks:
        if disk.purpose == "huggingface_cache" and tail and disk.path.rstrip("/").endswith(tail):
            return disk.path.rstrip("/").removesuffix(tail)
    entry = place.entry
    user = place.host.facts.user or (entry.user if entry is not None and entry.address != LOCAL else None)
    return "/root" if user in {None, "root"} else f"/home/{user}"


def _named(request: CompileRequest) -> list[Mount]:
    engine = request.workload.engine
    inside = request.model.inside.rstrip("/") if isinstance(request.model, DirectoryModel) else None
    mounts = [
        Mount(source=path.rstrip("/"), target=path.rstrip("/"), read_only=True)
        for path in _paths(engine)
        if path.startswith("/")
        and path.rstrip("/")
        and not path.startswith(_OF_THE_IMAGE)
        and not (inside is not None and (path == inside or path.startswith(f"{inside}/")))
    ]
    download = engine.values.get("download_dir")
    if isinstance(download, str) and download.startswith("/"):
        mounts.append(Mount(source=download.rstrip("/"), target=download.rstrip("/"), make=True))
    return mounts


def _paths(engine: EngineArguments) -> Iterable[str]:
    for name in _FILES:
        value = engine.values.get(name)
        if isinstance(value, str):
            yield value
    draft = (engine.speculative_config or {}).get("model")
    if isinstance(draft, str):
        yield draft
    for module in engine.lora_modules:
        yield from _of_module(module)


def _of_module(module: str) -> Iterable[str]:
    """The path in `name=path` or `{"name": …, "path": …}` (vLLM 0.33, `entrypoints/openai/cli_args.py`)."""
    if module.lstrip().startswith("{"):
        try:
            document = json.loads(module)
        except ValueError:
            return
        path = document.get("path") if isinstance(document, dict) else None
        if isinstance(path, str):
            yield path
        return
    _name, equals, path = module.partition("=")
    if equals:
        yield path
