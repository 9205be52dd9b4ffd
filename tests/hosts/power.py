"""A host that loses its power, and starts again with what was on its disks."""

from tests.hosts.engine import Engine
from tests.hosts.ssh_server import SshServer
from tests.hosts.waiting import wait_for

_FORGET = """\
for place in $(awk '$2 ~ "^/(srv|run)/docker/" { print $2 }' /proc/mounts | sort -r); do umount -l "$place"; done
rm -rf /run/docker /run/docker.pid /run/docker.sock /run/containerd /run/sshd.pid
"""
"""What a machine does not keep: mounts of containers, sockets, the engine's view of what runs."""


class Power(SshServer, Engine):
    """A machine with a switch."""

    def power_off(self) -> None:
        """At once: the cable is dead, every process is gone; the disks keep what was written."""
        self.bridge.pull(self.cable)
        self._off = True
        self.later(self.power_on)
        wait_for(f"the end of {self.name}", self._is_empty)
        self.run("sh", "-c", _FORGET)

    def power_on(self) -> None:
        """Start again: the engine finds its containers ended, unless their restart policy starts them."""
        if not self._off:
            return
        self._off = False
        if self.spec.engine:
            self.lay_out_toolkit()
            self.start_dockerd()
        self.start_sshd()
        self.bridge.plug(self.cable)
        if self.spec.engine:
            self.await_dockerd()

    _off = False

    def _is_empty(self) -> bool:
        """Kill everything but the first process, and look who is left: us, who look."""
        self.run("sh", "-c", "kill -KILL -1", check=False)
        return self.text("sh", "-c", "ls -d /proc/[0-9]* | wc -l") in ("3", "4")
