"""The Docker engine of a test host: a dockerd of its own, and what can be wrong with it."""

import shlex
import shutil
import tempfile
from pathlib import Path

from tests.hosts.images import ImageSpec, archive, image_id, write_archive
from tests.hosts.machine import PROGRAMS, Machine
from tests.hosts.network import HarnessFailed
from tests.hosts.waiting import wait_for

HOOK = "nvidia-container-runtime-hook"
"""dockerd offers GPUs when a program of this name is on its PATH at start."""


class Engine(Machine):
    """A machine with an engine at /var/run/docker.sock; containers with the host's network are at its address."""

    def lay_out_toolkit(self) -> None:
        """Have the toolkit's hook among the host's tools, or not, as the spec says."""
        hook = self.directory / "bin" / HOOK
        if self.spec.toolkit:
            shutil.copy(PROGRAMS / HOOK, hook)
            hook.chmod(0o755)

    def start_dockerd(self, *options: str) -> None:
        """Start dockerd, which takes a second: `await_dockerd`. It offers GPUs when the hook is there now.

        Registries at an address of the fleet's network may speak plain HTTP.
        """
        arguments = [
            "dockerd", "--data-root=/srv/docker", "--exec-root=/run/docker", "--host=unix:///run/docker.sock",
            "--pidfile=/run/docker.pid", "--bridge=none", "--iptables=false", "--ip6tables=false",
            "--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent={self.cgroup}",
            f"--insecure-registry={self.bridge.network}",
            *options,
        ]  # fmt: skip
        start = f"setsid {shlex.join(arguments)} >>/srv/logs/dockerd.log 2>&1 </dev/null &"
        self.run("sh", "-c", f"rm -f /run/docker.pid; {start}")

    def await_dockerd(self) -> None:
        """Until it answers. `docker info` would not tell: it ends with 0 without an engine."""
        try:
            wait_for(
                f"dockerd on {self.name}", lambda: self.run("docker", "version", check=False).returncode == 0
            )
        except BaseException as error:
            error.add_note((self.directory / "logs" / "dockerd.log").read_text()[-3000:])
            raise

    def load(self, image: ImageSpec) -> None:
        """Put an image into the engine."""
        self.run("docker", "load", "--quiet", stdin=archive(image))

    def load_large(self, image: ImageSpec) -> None:
        """Likewise an image of gigabytes, by way of a file."""
        with tempfile.NamedTemporaryFile(prefix="gpuplan-image-") as file:
            write_archive(image, file)
            file.flush()
            self.run("docker", "load", "--quiet", "--input", file.name, seconds=600)

    def stop_dockerd(self) -> None:
        """Kill dockerd as a crash does: the socket file and running containers stay."""
        self._kill_dockerd()
        self.later(self._restore_dockerd)

    def restart_dockerd(self, *, keep: bool = False) -> None:
        """Restart dockerd as an update does: containers are stopped with it; `keep` (live restore) lets them run on."""
        if keep:
            self._kill_dockerd()
            self.start_dockerd("--live-restore")
            self.later(self._restore_dockerd)
        else:
            self.run("pkill", "-TERM", "-x", "dockerd")
            self._await_end()
            self.start_dockerd()
        self.await_dockerd()

    def remove_containers(self) -> None:
        """Remove every container, whoever made it, with its anonymous volumes."""
        self.run("sh", "-c", "docker ps -aq | xargs -r docker rm -f -v")

    def images_as_made(self) -> None:
        """Have the images of the spec and no others; takes no time where it is so."""
        wanted = {image.tag: image_id(image) for image in self.spec.images}
        listed = self.text(
            "docker", "image", "ls", "--all", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}"
        )
        there = dict(line.split(maxsplit=1) for line in listed.splitlines())
        if there == wanted:
            return
        self.run("sh", "-c", "docker image ls -aq | sort -u | xargs -r docker image rm --force")
        for image in self.spec.images:
            self.load(image)

    def limit_memory(self, mebibytes: int) -> None:
        """Leave the host's containers so much memory together; the kernel ends one that takes more."""
        first = Path("/sys/fs/cgroup/memory")
        group = (first if first.is_dir() else first.parent) / self.cgroup.lstrip("/")
        group.mkdir(parents=True, exist_ok=True)
        limit, none = (
            (group / "memory.limit_in_bytes", "-1") if first.is_dir() else (group / "memory.max", "max")
        )
        if not limit.exists():
            raise HarnessFailed(f"{self.name}: no control group of this machine limits memory: {limit}")
        limit.write_text(str(mebibytes * 1024**2))
        self.later(lambda: limit.write_text(none))

    def without_docker(self) -> None:
        """No dockerd and no socket, as where Docker was never installed (the client program is still there)."""
        self.stop_dockerd()
        self.run("rm", "-f", "/run/docker.sock")

    def without_toolkit(self) -> None:
        """An engine that cannot hand out GPUs."""
        (self.directory / "bin" / HOOK).unlink()
        self.later(self._restore_dockerd)
        self._kill_dockerd()
        self.start_dockerd()
        self.await_dockerd()

    def docker_socket(self, mode: int) -> None:
        """Change who may use the engine's socket."""
        before = self.text("stat", "-c", "%a", "/run/docker.sock")
        self.run("chmod", f"{mode:o}", "/run/docker.sock")
        self.later(lambda: self.run("chmod", before, "/run/docker.sock"))

    def fill(self, path: str = "/srv/docker", leave: int = 1024**2) -> None:
        """Take the space of the file system under `path` but for `leave` bytes, without writing to it."""
        size = self.text("df", "--output=size", "-B1", path).splitlines()[-1].strip()
        used = int(self.text("df", "--output=used", "-B1", path).splitlines()[-1])
        self.run("mount", "-o", f"remount,size={used + leave}", path)
        self.later(lambda: self.run("mount", "-o", f"remount,size={size}", path))

    def _kill_dockerd(self) -> None:
        self.run("pkill", "-KILL", "-x", "dockerd|containerd", check=False)
        self._await_end()

    def _await_end(self) -> None:
        wait_for(
            f"the end of dockerd on {self.name}",
            lambda: self.run("pgrep", "-x", "dockerd|containerd", check=False).returncode == 1,
        )

    def _restore_dockerd(self) -> None:
        self.lay_out_toolkit()
        self._kill_dockerd()
        self.start_dockerd()
        self.await_dockerd()
