"""A deployment as one POSIX shell script that does over `ssh` what `deploy` does through the engine, in the same order."""

import shlex
from collections.abc import Iterator

from gpuplan.deploying.docker_run import docker_text, made_directories, put_secrets_text
from gpuplan.deploying.steps import AwaitServing, Create, PullImage, PutSecrets, Start, steps
from gpuplan.domain.deployment import ContainerRole, DeploymentSpec

_START = """\
set -eu
cd "$(dirname "$0")"

# One command on a host: its words are quoted once more, for the host's shell.
on() {
    host=$1
    shift
    words=
    for word in "$@"; do
        quoted=$(printf '%sx' "$word" | sed "s/'/'\\\\\\\\''/g")
        words="$words '${quoted%x}'"
    done
    ssh -o BatchMode=yes "$host" "$words"
}

say() { printf '%s\\n' "$*" >&2; }

# Wait for a container's health check; its end is an error.
serving() {
    while :; do
        case $(on "$1" docker inspect --format '{{.State.Status}} {{if .State.Health}}{{.State.Health.Status}}{{end}}' "$2") in
            'running healthy') return 0 ;;
            running*) sleep 5 ;;
            *) say "$2 on $1 ended:"; on "$1" docker logs --tail 50 "$2" >&2; return 1 ;;
        esac
    done
}
"""


def script_text(spec: DeploymentSpec) -> str:
    """The script without its head: `up`, `status`, `down`."""
    up = "\n".join(_up(spec))
    status = "\n".join(
        f"    on {shlex.quote(item.host)} docker ps --all --filter {shlex.quote(f'name=^/{item.name}$')}"
        " --format '{{.Names}}  {{.Status}}'"
        for item in spec.containers
    )
    down = "\n".join(_down(spec))
    return (
        f"{_START}\nup() {{\n{up}\n}}\n\nstatus() {{\n{status}\n}}\n\ndown() {{\n{down}\n}}\n\n"
        'case ${1:-} in\n    up | status | down) "$1" ;;\n'
        '    *) say "usage: sh $0 up | status | down"; exit 2 ;;\nesac\n'
    )


def _up(spec: DeploymentSpec) -> Iterator[str]:
    """The steps that a shell can do; what the rest would have seen shows when a container ends."""
    below = {ContainerRole.RAY_HEAD, ContainerRole.FOLLOWER}
    watched = {item.server: item for item in spec.containers if item.health and item.role not in below}
    made = {(item.host, item.name): item for item in spec.containers}
    yield "    trap 'say \"not started; what was made is left to look at: sh $0 down removes it\"' EXIT"
    for step in steps(spec):
        host = shlex.quote(step.host)
        match step:
            case PullImage():
                yield f"    on {host} docker pull --quiet {shlex.quote(step.image)} >&2"
            case Create():
                directories = made_directories(step.container)
                if directories:
                    yield f"    on {host} mkdir -p {shlex.join(directories)}"
                yield docker_text(step.container, ("on", step.host, "docker", "create"), 110, "    ")
            case PutSecrets():
                secret = made[step.host, step.container]
                yield put_secrets_text(secret, 110, "    ", docker=("on", step.host, "docker"))
            case Start():
                yield f"    on {host} docker start {shlex.quote(step.container)}"
            case AwaitServing() if step.server.number in watched:
                item = watched[step.server.number]
                yield f"    say {shlex.quote(f'waiting for {item.name} on {item.host}')}"
                yield f"    serving {shlex.quote(item.host)} {shlex.quote(item.name)}"
                yield f"    say {shlex.quote(f'{spec.served_name} serves at {step.server.endpoint}')}"
            case _:
                continue
    yield "    trap - EXIT"


def _down(spec: DeploymentSpec) -> Iterator[str]:
    """In the order opposite to starting; what is gone already is no reason to stop."""
    for item in reversed(spec.containers):
        host, name = shlex.quote(item.host), shlex.quote(item.name)
        yield f"    on {host} docker stop -t {item.stop_seconds} {name} || :"
        yield f"    on {host} docker rm --force --volumes {name} || :"
