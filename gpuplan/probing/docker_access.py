"""How the login of a probe may reach a container engine: sockets, group, CLI, container toolkit.

Over SSH a socket that is refused says nothing of why; what was seen here explains it.
"""

from dataclasses import dataclass

from gpuplan.probing.command import Command
from gpuplan.probing.output import Output

_SHELL = """\
gp_socket() {
  case "$2" in /*) ;; *) return ;; esac
  gp_kind=missing; gp_read=no; gp_write=no; gp_listen=unknown
  if [ -S "$2" ]; then gp_kind=socket; elif [ -e "$2" ]; then gp_kind=other; fi
  [ -r "$2" ] && gp_read=yes
  [ -w "$2" ] && gp_write=yes
  if [ "$gp_kind" = socket ] && [ -r /proc/net/unix ]; then
    gp_listen=no
    while read -r _ _ _ gp_flags _ _ _ gp_path; do
      [ "$gp_flags" = 00010000 ] || continue
      case "$gp_path" in "$2" | "${2#/var}" | "/var$2") gp_listen=yes; break ;; esac
    done </proc/net/unix
  fi
  printf 'socket %s %s %s %s %s %s\\n' "$1" "$gp_kind" "$gp_read" "$gp_write" "$gp_listen" "$2"
}
gp_word() { [ -z "$2" ] || printf '%s %s\\n' "$1" "$2"; }
gp_uid=$(id -u)
gp_word user "$(id -un 2>/dev/null || echo "$gp_uid")"
gp_word groups "$(id -Gn 2>/dev/null)"
gp_word cli "$(command -v docker 2>/dev/null)"
gp_word dockerd "$(command -v dockerd 2>/dev/null)"
gp_word podman "$(command -v podman 2>/dev/null)"
if pgrep -x dockerd >/dev/null 2>&1; then echo 'daemon yes'
elif [ $? = 1 ]; then echo 'daemon no'; fi
gp_word hook "$(command -v nvidia-container-runtime-hook 2>/dev/null)"
gp_word amd-hook "$(command -v amd-container-runtime 2>/dev/null)"
for gp_spec in /etc/cdi/* /var/run/cdi/*; do
  [ -r "$gp_spec" ] || continue
  grep -q 'nvidia.com/gpu' "$gp_spec" 2>/dev/null && gp_word cdi-nvidia "$gp_spec"
  grep -q 'amd.com/gpu' "$gp_spec" 2>/dev/null && gp_word cdi-amd "$gp_spec"
done
gp_word host "$DOCKER_HOST"
gp_socket environment "${DOCKER_HOST#unix://}"
gp_socket system /var/run/docker.sock
[ -z "$XDG_RUNTIME_DIR" ] || gp_socket rootless "$XDG_RUNTIME_DIR/docker.sock"
[ "$XDG_RUNTIME_DIR" = "/run/user/$gp_uid" ] || gp_socket rootless "/run/user/$gp_uid/docker.sock"
gp_socket podman /run/podman/podman.sock
gp_socket podman "${XDG_RUNTIME_DIR:-/run/user/$gp_uid}/podman/podman.sock"
gp_word toolkit "$(nvidia-ctk --version 2>/dev/null | head -n 1)"
gp_word toolkit "$(nvidia-container-cli --version 2>/dev/null | head -n 1)"
gp_context=$(docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null | head -n 1)
gp_word context "$gp_context"
gp_socket context "${gp_context#unix://}"
"""

COMMANDS = (Command(name="docker_access", shell=_SHELL, timeout=10),)
"""What cannot hang comes first: of a section that runs out of time the beginning is read."""

_ORDER = ("inventory", "environment", "context", "system", "rootless", "podman")
_WORDS_OF_SOCKET = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketSeen:
    """A place where an engine's socket may be."""

    path: str
    origin: str = "system"
    """`environment` (DOCKER_HOST), `context` of the docker CLI, `system`, `rootless`, `podman`."""
    present: bool = True
    """It is there, and it is a socket."""
    permitted: bool = True
    """The login may read and write it."""
    listening: bool | None = None
    """A process listens on it. None: the kernel does not show it here, as for rootless engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerAccess:
    """What the login of the probe has to reach an engine with."""

    user: str = ""
    groups: tuple[str, ...] = ()
    sockets: tuple[SocketSeen, ...] = ()
    """Best first: DOCKER_HOST, the docker context, the system's, rootless, podman."""
    cli: str | None = None
    """Path of `docker`."""
    installed: bool = False
    """dockerd, the docker CLI or podman is there."""
    daemon: bool | None = None
    """A dockerd process was seen. None: nothing to look for it with."""
    endpoint: str = ""
    """DOCKER_HOST or the context's host when that is no socket of this host: `tcp://…`, `ssh://…`."""
    toolkit_version: str | None = None
    """Of the NVIDIA container toolkit."""
    hook: str | None = None
    """`nvidia-container-runtime-hook`: with it on its PATH dockerd knows `--gpus` without a runtime."""
    amd_hook: str | None = None
    """`amd-container-runtime`, likewise for AMD."""
    cdi_vendors: tuple[str, ...] = ()
    """`nvidia`, `amd`: vendors with a CDI specification on the host."""

    @property
    def answered(self) -> bool:
        """The host was asked and answered; else nothing is known, not even that nothing is there."""
        return bool(self.user or self.sockets)

    @property
    def socket(self) -> SocketSeen | None:
        """The best socket: the first that may be used, else the first that is there."""
        present = [each for each in self.sockets if each.present]
        return next((each for each in present if each.permitted), present[0] if present else None)

    @property
    def permitted(self) -> bool:
        return self.socket is not None and self.socket.permitted


def parse(output: Output) -> DockerAccess:
    """The section `docker_access`; lines it does not know are left out."""
    words: dict[str, str] = {}
    sockets: list[SocketSeen] = []
    cdi: set[str] = set()
    for line in output.text.splitlines():
        key, _, value = line.partition(" ")
        value = value.strip()
        if key == "socket":
            seen = _socket(value)
            if seen is not None and seen.path not in {
                each.path for each in sockets if each.origin == seen.origin
            }:
                sockets.append(seen)
        elif key.startswith("cdi-"):
            cdi.add(key.removeprefix("cdi-"))
        elif value:
            words.setdefault(key, value)
    remote = [words[key] for key in ("host", "context") if key in words]
    return DockerAccess(
        user=words.get("user", ""),
        groups=tuple(words.get("groups", "").split()),
        sockets=_distinct(sorted(sockets, key=lambda each: _ORDER.index(each.origin))),
        cli=words.get("cli"),
        installed=any(key in words for key in ("cli", "dockerd", "podman")),
        daemon={"yes": True, "no": False}.get(words.get("daemon", "")),
        endpoint=next((each for each in remote if not each.startswith(("/", "unix://"))), ""),
        toolkit_version=_version(words.get("toolkit", "")),
        hook=words.get("hook"),
        amd_hook=words.get("amd-hook"),
        cdi_vendors=tuple(sorted(cdi)),
    )


def _socket(value: str) -> SocketSeen | None:
    parts = value.split(" ", _WORDS_OF_SOCKET - 1)
    if len(parts) != _WORDS_OF_SOCKET or parts[0] not in _ORDER:
        return None
    origin, kind, readable, writable, listening, path = parts
    private = path.startswith("/run/user/") or origin == "rootless"
    return SocketSeen(
        path=path,
        origin=origin,
        present=kind == "socket",
        permitted=kind == "socket" and readable == writable == "yes",
        # a rootless engine lives in a network namespace of its own, whose sockets are not listed outside
        listening={"yes": True, "no": None if private else False}.get(listening),
    )


def _distinct(sockets: list[SocketSeen]) -> tuple[SocketSeen, ...]:
    """Each path once, `/var/run` and `/run` being the same place."""
    found: dict[str, SocketSeen] = {}
    for each in sockets:
        found.setdefault(
            each.path.removeprefix("/var") if each.path.startswith("/var/run/") else each.path, each
        )
    return tuple(found.values())


def _version(printed: str) -> str | None:
    """`1.17.8` from `NVIDIA Container Toolkit CLI version 1.17.8` or `cli-version: 1.13.5`."""
    last = printed.rsplit(maxsplit=1)[-1] if printed.strip() else ""
    return last if last[:1].isdigit() else None
