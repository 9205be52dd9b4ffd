"""A container as the `docker` command that makes it, for reading and for pasting. It never holds a secret's value.

What the command line cannot say as the engine is told it: an entrypoint of several words (the rest goes before the
arguments) and a health check without a shell.
"""

import shlex
from collections.abc import Iterable, Sequence

from gpuplan.deploying.create_body import (
    IPC,
    LOG_DRIVER,
    LOG_OPTIONS,
    NETWORK,
    RESTART,
    STOP_SIGNAL,
    has_device_request,
    has_init,
)
from gpuplan.domain.deployment import SECRETS_DIRECTORY, ContainerSpec, HealthCheck, Mount
from gpuplan.units import GIB

Option = tuple[str, ...]
"""A flag with its value, if it takes one: never torn apart where lines are broken."""
SECRETS_HERE = "secrets"
"""Directory beside a pasted command or an exported file, with a file for each secret."""


def docker_run(container: ContainerSpec) -> tuple[str, ...]:
    """The words that start the container; with secrets, those that create it only: see `docker_commands`."""
    return _words(["docker", *_verb(container)], options(container), [container.image, *arguments(container)])


def docker_create(container: ContainerSpec) -> tuple[str, ...]:
    """The words that create the container without starting it."""
    return _words(["docker", "create"], options(container), [container.image, *arguments(container)])


def docker_commands(container: ContainerSpec) -> tuple[tuple[str, ...], ...]:
    """Every command it takes, in order: make its directories; then run, or create, put the secrets in, start."""
    directories = made_directories(container)
    before = (("mkdir", "-p", *directories),) if directories else ()
    if not container.secrets:
        return (*before, docker_run(container))
    start = ("docker", "start", container.name)
    return (*before, docker_create(container), put_secrets(container), start)


def put_secrets(container: ContainerSpec) -> tuple[str, ...]:
    """A shell that puts the files `secrets/NAME` of this directory into the created container, readable to its user."""
    return (
        "sh",
        "-c",
        f"{shlex.join(packed_secrets(container))} | docker cp - {shlex.quote(container.name)}:/",
    )


def put_secrets_text(
    container: ContainerSpec, width: int, indent: str = "", *, docker: Sequence[str] = ("docker",)
) -> str:
    """The same as shell text; `docker` are the words by which the engine's client is called."""
    packed = broken(([word] for word in packed_secrets(container)), width - 2, indent)
    return f"{packed} \\\n{indent}    | {shlex.join(docker)} cp - {shlex.quote(container.name)}:/"


def packed_secrets(container: ContainerSpec) -> tuple[str, ...]:
    """The words of GNU tar that write the secrets to stdout, laid out as inside the container, for its user only."""
    user, _, group = (container.user or "0:0").partition(":")
    return (
        "tar",
        f"--directory={SECRETS_HERE}",
        "--no-recursion",
        "--mode=u=rX,go=",
        f"--owner={user if user.isdigit() else 0}",
        f"--group={group if group.isdigit() else 0}",
        f"--transform=s,^[.],{SECRETS_DIRECTORY.strip('/')},",
        "--create",
        ".",
        *(f"./{name}" for name in sorted(container.secrets)),
    )


def made_directories(container: ContainerSpec) -> tuple[str, ...]:
    """Directories of the host that have to be made where they are missing, with the rights of the login."""
    return tuple(mount.source for mount in container.mounts if mount.make)


def docker_run_text(container: ContainerSpec, width: int = 110, *, indent: str = "") -> str:
    """All of it as shell text, broken between options with `\\`; a word longer than the line stays whole."""
    return "\n".join(command_texts(container, width, indent=indent))


def command_texts(container: ContainerSpec, width: int = 110, *, indent: str = "") -> tuple[str, ...]:
    """One text per command of `docker_commands`, each of one or more lines."""
    directories = made_directories(container)
    before = (
        [broken([["mkdir", "-p"], *([path] for path in directories)], width, indent)] if directories else []
    )
    made = docker_text(container, ("docker", *_verb(container)), width, indent)
    if not container.secrets:
        return (*before, made)
    start = shlex.join(("docker", "start", container.name))
    return (*before, made, put_secrets_text(container, width, indent), indent + start)


def docker_text(container: ContainerSpec, start: Sequence[str], width: int, indent: str = "") -> str:
    """`start` with everything that follows it. The image begins a line: from there on the words are the program's."""
    docker = broken([start, *options(container)], width - 2, indent)
    program = broken([[container.image], *grouped(arguments(container))], width, f"{indent}    ")
    return f"{docker} \\\n{program}"


def broken(groups: Iterable[Sequence[str]], width: int, indent: str = "") -> str:
    """Groups of words as a command over as many lines as needed, quoted for a POSIX shell."""
    rows: list[str] = []
    row = indent
    for group in groups:
        text = shlex.join(group)
        if row.strip() and len(row) + len(text) + 2 > width:
            rows.append(row.rstrip() + " \\")
            row = indent + "    "
        row += text + " "
    rows.append(row.rstrip())
    return "\n".join(rows)


def _verb(container: ContainerSpec) -> list[str]:
    return ["create"] if container.secrets else ["run", "--detach"]


def grouped(words: Sequence[str]) -> tuple[Option, ...]:
    """Arguments of a program, each flag with what follows it up to the next flag."""
    groups: list[list[str]] = []
    for word in words:
        if groups and not word.startswith("-") and groups[-1][0].startswith("--") and len(groups[-1]) == 1:
            groups[-1].append(word)
        else:
            groups.append([word])
    return tuple(tuple(group) for group in groups)


def arguments(container: ContainerSpec) -> tuple[str, ...]:
    """What follows the image: the entrypoint's further words, then the command."""
    return (*container.entrypoint[1:], *container.command)


def options(container: ContainerSpec) -> tuple[Option, ...]:
    """Every option of `docker create`, labels before what concerns the program."""
    return (
        ("--name", container.name),
        ("--network", NETWORK),
        ("--ipc", IPC),
        ("--shm-size", size(container.shm_bytes)),
        *_processes(container),
        *_access(container),
        *(("--mount", mount_words(mount)) for mount in container.mounts),
        *(("--volume", path) for path in container.volumes),
        *((("--volumes-from", container.volumes_from),) if container.volumes_from else ()),
        *_ending(container),
        *health_options(container.health),
        *(("--label", f"{name}={value}") for name, value in container.labels),
        *((("--user", container.user),) if container.user is not None else ()),
        *(("--env", f"{name}={value}") for name, value in container.env),
        *((("--entrypoint", container.entrypoint[0]),) if container.entrypoint else ()),
    )


def _processes(container: ContainerSpec) -> tuple[Option, ...]:
    init: tuple[Option, ...] = (("--init",),) if has_init(container) else ()
    pid: tuple[Option, ...] = (("--pid", f"container:{container.pid_from}"),) if container.pid_from else ()
    return (*init, *pid)


def _access(container: ContainerSpec) -> tuple[Option, ...]:
    """GPUs, device files and rights."""
    gpus: tuple[Option, ...] = ()
    if has_device_request(container):
        gpus = (("--gpus", f'"device={",".join(container.gpus)}"'),)
    return (
        *gpus,
        *(("--device", path) for path in container.devices),
        *(("--group-add", group) for group in container.groups),
        *(("--cap-add", name) for name in container.capabilities),
        *(("--security-opt", option) for option in container.security),
        *(("--ulimit", f"{name}={limit}:{limit}") for name, limit in container.ulimits),
    )


def _ending(container: ContainerSpec) -> tuple[Option, ...]:
    return (
        ("--restart", RESTART),
        ("--stop-signal", STOP_SIGNAL),
        ("--stop-timeout", str(container.stop_seconds)),
        ("--log-driver", LOG_DRIVER),
        *(("--log-opt", f"{name}={value}") for name, value in LOG_OPTIONS),
    )


def health_options(check: HealthCheck | None) -> tuple[Option, ...]:
    """The health check as options; the command line runs it by a shell."""
    if check is None:
        return (("--no-healthcheck",),)
    return (
        ("--health-cmd", _shell_text(check.command)),
        ("--health-interval", f"{check.interval_seconds}s"),
        ("--health-timeout", f"{check.timeout_seconds}s"),
        ("--health-retries", str(check.retries)),
        ("--health-start-period", f"{check.start_seconds}s"),
    )


def _shell_text(command: Sequence[str]) -> str:
    """The command as a shell's text; of one that is a shell with a script, the script with its arguments set."""
    match command:
        case ("/bin/sh", "-c", script, _, *given):
            return f"{shlex.join(('set', '--', *given))}; {script}"
        case _:
            return shlex.join(command)


def mount_words(mount: Mount) -> str:
    """The value of `--mount`: fields of a CSV line, as Docker reads it."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    if mount.read_only:
        fields.append("readonly")
    return ",".join(_csv(field) for field in fields)


def _csv(field: str) -> str:
    if any(char in field for char in ',"\n'):
        return '"' + field.replace('"', '""') + '"'
    return field


def size(number: int) -> str:
    """`10g` for whole GiB, else bytes."""
    return f"{number // GIB}g" if number and number % GIB == 0 else str(number)


def _words(start: Sequence[str], given: Iterable[Option], end: Sequence[str]) -> tuple[str, ...]:
    return (*start, *(word for option in given for word in option), *end)
