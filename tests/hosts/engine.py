"""The Docker engine of a test host: a dockerd of its own, and what can be wrong with it."""

import shlex
import shutil

from tests.hosts.images import ImageSpec, archive
from tests.hosts.machine import PROGRAMS, Machine
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

    def start_dockerd(self) -> None:
        """Start dockerd, which takes a second: `await_dockerd`. It offers GPUs when the hook is there now."""
        arguments = [
            "dockerd", "--data-root=/srv/docker", "--exec-root=/run/docker", "--host=unix:///run/docker.sock",
            "--pidfile=/run/docker.pid", "--bridge=none", "--iptables=false", "--ip6tables=false",
            "--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent={self.cgroup}",
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

    def stop_dockerd(self) -> None:
        """Kill dockerd as a crash does: the socket file and running containers stay."""
        self._kill_dockerd()
        self.later(self._restore_dockerd)

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
        wait_for(
            f"the end of dockerd on {self.name}",
            lambda: self.run("pgrep", "-x", "dockerd|containerd", check=False).returncode == 1,
        )

    def _restore_dockerd(self) -> None:
        self.lay_out_toolkit()
        self._kill_dockerd()
        self.start_dockerd()
        self.await_dockerd()
