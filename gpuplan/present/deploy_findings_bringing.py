"""Words about images and weights on their way to hosts (GP830 to GP849): what is missing where, and what brings it."""

from gpuplan.present.numbers import count, gib, listed
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural

_KEPT = "what was downloaded is kept: the next deploy goes on from there"


def _host(subject: Given) -> str:
    return str(subject.get("host") or "a host")


def _image(figures: Given) -> str:
    return str(figures.get("image") or "the image")


def _model(figures: Given) -> str:
    revision = figures.get("revision")
    return f"{figures.get('model') or 'the model'}{f'@{revision}' if revision else ''}"


def _said(figures: Given, who: str = "it said") -> tuple[str, ...]:
    detail = figures.get("detail")
    return (f"{who}: {detail}",) if detail else ()


def _names(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else []


def _file_system(figures: Given) -> str:
    """`/var/lib/docker (/dev/sda1)`."""
    device = figures.get("device")
    return f"{figures.get('path') or 'its disk'}{f' ({device})' if device else ''}"


def _short_id(value: object) -> str:
    return str(value or "unknown").removeprefix("sha256:")[:12]


def _lost(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: the connection was lost while {_image(figures)} was brought there",
        _said(figures),
        "what had arrived is kept by Docker; deploy again when the host answers: gpuplan probe",
    )


def _no_image(subject: Given, figures: Given) -> Words:
    if figures.get("archive"):
        return told(
            f"{_host(subject)}: {figures['archive']} was loaded, and {_image(figures)} was not in it",
            (),
            f"tar -xOf {figures['archive']} manifest.json shows what is; name that with --image",
        )
    holder = figures.get("holder")
    because = (f"{holder} has it",) if holder else ("no host has it, nor this machine's Docker",)
    return told(
        f"{_host(subject)}: {_image(figures)} is missing, and nothing was to bring it there",
        because,
        f"--image-source auto brings it; or on the host: docker pull {_image(figures)}",
    )


def _other_build(subject: Given, figures: Given) -> Words:
    holder = figures.get("holder") or "the leader"
    headline = (
        f"{_host(subject)}: {_image(figures)} is another build there ({_short_id(figures.get('id'))}) than on {holder} "
        f"({_short_id(figures.get('wanted'))})"
    )
    return told(
        headline,
        ("all hosts of a deployment run one build",),
        f"it is given {holder}'s build by its id (not with --image-source never), and its tag stays as it is; "
        f"docker images --digests {_image(figures)} shows it",
    )


def _architecture(subject: Given, figures: Given) -> Words:
    own = figures.get("image_architecture")
    machine = figures.get("host_architecture") or "another machine"
    what = f"is made for {own}" if own else "is not published for it"
    return told(
        f"{_host(subject)} is {machine}, and {_image(figures)} {what}",
        _said(figures, "the engine said"),
        "use an image for that machine (--image), or keep unlike hosts apart (--host): all hosts of a deployment run "
        "one build",
    )


def _no_room(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: {_image(figures)} takes {gib(figures.get('needed_bytes'))}, "
        f"{_file_system(figures)} has {gib(figures.get('free_bytes'))} free",
        (),
        "on the host: docker system df shows what Docker keeps, docker image prune removes what no container uses",
    )


def _filled(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: {_file_system(figures)} got full while {_image(figures)} was brought there",
        _said(figures, "the engine said"),
        f"df -h {figures.get('path') or '/var/lib/docker'} on the host; docker image prune removes what no container uses",
    )


def _unknown_image(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: the registry does not have {_image(figures)}",
        _said(figures, "the registry said"),
        "check the name and the tag; an image built here reaches the hosts with --image-source fleet, or as a file: "
        "docker save IMAGE -o image.tar, then --image-source image.tar",
    )


def _refused(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: the registry refuses {_image(figures)}",
        _said(figures, "the registry said"),
        "docker login REGISTRY on this machine: its login is used for every host and stored on none; a wrong name is "
        "refused the same way",
    )


def _no_registry(subject: Given, figures: Given) -> Words:
    source = figures.get("source")
    because = (
        *_said(figures, "the engine said"),
        *((f"it is copied from {source} instead",) if source else ()),
    )
    hints = {
        "rate_limited": "docker login on this machine raises the limit; or name a mirror: vllm: {registry: HOST}",
        "stalled": "the pull stood still; deploy again, or --image-source fleet copies it from a host that has it",
    }
    otherwise = (
        "on the host: docker pull shows the same. Without a way to the registry --image-source fleet copies the image from a "
        "host or this machine, --image-source FILE from an archive of docker save"
    )
    return told(
        f"{_host(subject)}: {_image(figures)} cannot be pulled",
        because,
        hints.get(str(figures.get("cause")), otherwise),
    )


def _not_copied(subject: Given, figures: Given) -> Words:
    source = figures.get("source")
    at = figures.get("at_source")
    where = f" (the fault is {at}'s)" if at else ""
    return told(
        f"{_host(subject)}: {_image(figures)} could not be copied there{f' from {source}' if source else ''}{where}",
        _said(figures),
        f"by hand: docker save {_image(figures)} | ssh HOST docker load",
    )


def _no_model(subject: Given, figures: Given) -> Words:
    owners = _names(figures.get("have"))
    looked = _names(figures.get("looked"))
    have = f"{listed(owners)} {'has' if len(owners) == 1 else 'have'} it" if owners else "no host has it"
    return told(
        f"{_host(subject)}: {_model(figures)} is not there",
        (f"looked for config.json in {', '.join(looked) or 'no place'}", have),
        f"copy it: rsync -a {owners[0] if owners else 'SOURCE'}:DIRECTORY/ {_host(subject)}:DIRECTORY/; or set "
        "model_dir: of the host in the inventory",
    )


def _missing_files(subject: Given, figures: Given) -> Words:
    missing, owners = _names(figures.get("missing")), _names(figures.get("have"))
    broken = _names(figures.get("broken"))
    because = (
        *((f"{plural(len(broken), 'link')} of the cache lead nowhere",) if broken else ()),
        *((f"{listed(owners)} {'has' if len(owners) == 1 else 'have'} them",) if owners else ()),
    )
    path = figures.get("path")
    return told(
        f"{_host(subject)}: {plural(len(missing), 'file')} of the model missing in {path}: {listed(missing)}",
        because,
        f"rsync -aL {owners[0]}:DIRECTORY/ {_host(subject)}:{path}/"
        if owners
        else f"hf download MODEL --local-dir {path} on the host fetches what is missing",
    )


def _wrong_size(subject: Given, figures: Given) -> Words:
    size, right = figures.get("bytes"), figures.get("expected_bytes")
    file = f"{figures.get('path')}/{figures.get('file')}"
    owner = figures.get("have")
    if figures.get("pointer"):
        return told(
            f"{_host(subject)}: {file} holds no weights ({count(size or 0)} bytes)",
            ("its head is not that of a safetensors file: a Git LFS pointer, or a broken download",),
            "git lfs pull in the directory; or download the file again",
        )
    gap = (right or 0) - (size or 0)
    short = f", {gib(gap)} short" if gap > 0 else ""
    return told(
        f"{_host(subject)}: {file} has {count(size or 0)} bytes, {count(right or 0)} are right{short}",
        (f"{owner} has the whole file" if owner else "its own head promises them",),
        f"on the host: remove the file, then rsync -aL {owner}:DIRECTORY/{figures.get('file')} {figures.get('path')}/"
        if owner
        else "on the host: remove the file and download it again (gpuplan deletes nothing of yours)",
    )


def _not_the_same(subject: Given, figures: Given) -> Words:
    files = _names(figures.get("files"))
    if figures.get("outside"):
        return told(
            f"{_host(subject)}: {plural(len(files), 'file')} of {figures.get('path')} lead out of it: {listed(files)}",
            ("a container that is given the directory does not see where these links lead",),
            "give the model's id on the hub when this is a snapshot of its cache; else a directory with the files "
            "themselves: cp -rL",
        )
    revisions = (figures.get("revision"), figures.get("other_revision"))
    because = (f"revisions: {revisions[0]} here, {revisions[1]} there",) if all(revisions) else ()
    return told(
        f"{_host(subject)}: {listed(files)} of the model differ from those on {figures.get('other') or 'the leader'}",
        (*because, "hosts that load different files fail late, or answer wrongly"),
        f"rsync -aL {figures.get('other')}:DIRECTORY/ {_host(subject)}:{figures.get('path')}/; or ask for one revision: "
        "MODEL@COMMIT",
    )


def _no_room_for_model(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: {gib(figures.get('needed_bytes'))} of {_model(figures)} are still to come, "
        f"{_file_system(figures)} has {gib(figures.get('free_bytes'))} free",
        (),
        "make room there (hf cache ls shows what the cache holds), or set vllm: {huggingface_home: DIRECTORY} in the "
        "inventory",
    )


def _model_filled(subject: Given, figures: Given) -> Words:
    done, total, free = figures.get("done_bytes"), figures.get("total_bytes"), figures.get("free_bytes")
    left = f", {gib(free)} free now" if free is not None else ""
    return told(
        f"{_host(subject)}: {_file_system(figures)} got full at {gib(done)} of {gib(total)} of {_model(figures)}{left}",
        (*_said(figures), _KEPT),
        f"make room: df -h {figures.get('path')} on the host; or set vllm: {{huggingface_home: DIRECTORY}} in the inventory",
    )


def _gated(subject: Given, figures: Given) -> Words:
    with_token = bool(figures.get("token"))
    hint = (
        f"ask for access at https://huggingface.co/{figures.get('model')} with the account the token belongs to; a "
        "fine-grained token needs the right to read gated repositories"
        if with_token
        else f"ask for access at https://huggingface.co/{figures.get('model')}, then set HF_TOKEN on this machine"
    )
    return told(
        f"{_host(subject)}: the hub does not give {_model(figures)} {'to this token' if with_token else 'without a token'}",
        _said(figures, "the hub said"),
        hint,
    )


def _no_such_model(subject: Given, figures: Given) -> Words:
    what = "has no such revision of" if figures.get("ending") == "no_revision" else "does not have"
    token = () if figures.get("token") else ("a private model looks like a missing one without a token",)
    return told(
        f"{_host(subject)}: the hub {what} {_model(figures)}",
        (*_said(figures, "the hub said"), *token),
        "check the name at https://huggingface.co; for a private model set HF_TOKEN on this machine",
    )


def _no_download(subject: Given, figures: Given) -> Words:
    hints = {
        "network": "on the host: curl -I https://huggingface.co; a proxy or a mirror goes into vllm: {env: {HTTPS_PROXY: …, "
        "HF_ENDPOINT: …}}; without a network copy the model into model_dir: rsync -a",
        "limited": "set HF_TOKEN: the hub allows more to accounts; or deploy again later",
        "no_library": "the image has no Python with huggingface_hub; on the host: hf download MODEL",
        "offline": "take HF_HUB_OFFLINE out of vllm: {env: …}; or copy the model to the host",
        "incomplete": "hf download MODEL on the host shows what is wrong",
    }
    ending = str(figures.get("ending"))
    return told(
        f"{_host(subject)}: {_model(figures)} was not downloaded"
        + (" whole" if ending == "incomplete" else ""),
        (*_said(figures), _KEPT),
        hints.get(ending, "deploy again to go on; hf download MODEL on the host shows more"),
    )


def _no_directory(subject: Given, figures: Given) -> Words:
    user = figures.get("user") or "the login"
    return told(
        f"{_host(subject)}: {user} cannot write to {figures.get('path')}",
        _said(figures, "the host said"),
        f"sudo install -d -o {figures.get('user') or 'USER'} {figures.get('path')} on the host; or name another directory "
        "in the inventory: vllm: {cache_dir: …, huggingface_home: …}",
    )


WORDS: dict[str, Worder] = {
    "GP830": _lost,
    "GP831": _no_image,
    "GP832": _other_build,
    "GP833": _architecture,
    "GP834": _no_room,
    "GP835": _filled,
    "GP836": _unknown_image,
    "GP837": _refused,
    "GP838": _no_registry,
    "GP839": _not_copied,
    "GP840": _no_model,
    "GP841": _missing_files,
    "GP842": _wrong_size,
    "GP843": _not_the_same,
    "GP844": _no_room_for_model,
    "GP845": _model_filled,
    "GP846": _gated,
    "GP847": _no_such_model,
    "GP848": _no_download,
    "GP849": _no_directory,
}
