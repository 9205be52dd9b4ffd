"""Who runs a process, and in which container: one line `PID USER CGROUPS` for each, printed by the host.

Container ids are the 64 hexadecimal digits in the path of the control group: `/docker/ID` and `docker-ID.scope`,
`libpod-ID.scope` (podman), `cri-containerd-ID.scope`, `nerdctl-ID.scope`, `/kubepods/…/ID`. With containers in
containers the outermost is taken: it is the one the host's engine knows.
"""

import re

from gpuplan.domain.fleet import GpuProcess

OWNERS = """\
case $p in ''|*[!0-9]*) continue ;; esac
[ -d "/proc/$p" ] || continue
u=$(stat -c %U "/proc/$p" 2>/dev/null) || u=$(ps -o user= -p "$p" 2>/dev/null)
[ "$u" != UNKNOWN ] || u=$(stat -c %u "/proc/$p" 2>/dev/null)
g=
while IFS= read -r l; do g="$g;$l"; done 2>/dev/null <"/proc/$p/cgroup"
printf '%s %s %s\\n' "$p" "${u:--}" "$g"
"""
"""Body of a shell loop over pids in `$p`."""
_CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def parse(text: str) -> dict[int, GpuProcess]:
    """By pid; lines of any other kind are passed over."""
    found: dict[int, GpuProcess] = {}
    for line in text.splitlines():
        words = line.split(maxsplit=2)
        if len(words) < 2 or not words[0].isdecimal():
            continue
        container = _CONTAINER.search(words[2]) if len(words) == 3 else None
        found[int(words[0])] = GpuProcess(
            pid=int(words[0]),
            user=words[1] if words[1] != "-" else None,
            container=container.group() if container is not None else None,
        )
    return found
