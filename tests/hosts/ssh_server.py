"""The SSH server of a test host: OpenSSH's own, with other options, other keys, or stopped."""

from collections.abc import Mapping

from tests.hosts.machine import PATH, Machine
from tests.hosts.waiting import wait_for

_SETTINGS = {
    "HostKey": "/srv/ssh/host_key",
    "AuthorizedKeysFile": "/srv/ssh/authorized_keys",
    "StrictModes": "no",
    "UsePAM": "no",
    "PermitRootLogin": "yes",
    "PasswordAuthentication": "no",
    "KbdInteractiveAuthentication": "no",
    "SetEnv": f"PATH={PATH}",
    "PidFile": "/run/sshd.pid",
    "MaxStartups": "200",
    "LogLevel": "VERBOSE",
    "UseDNS": "no",
}
_NAMES = "sshd|sshd-session|sshd-auth"
"""Of the server's processes; from OpenSSH 9.8 on a session has a program of its own."""
_KILL = f"rm -f /run/sshd.pid; pkill -KILL -x '{_NAMES}'; ! pgrep -x '{_NAMES}'"


class SshServer(Machine):
    """A machine that serves SSH on port 22 to the fleet's key."""

    def start_sshd(self, options: Mapping[str, str] | None = None) -> None:
        """Start sshd; `options` are those of sshd_config and take the place of the harness's own."""
        settings = {**_SETTINGS, **self._unpunished(), **(options or {})}
        self.write(
            "/srv/ssh/sshd_config", "".join(f"{key} {value}\n" for key, value in settings.items()), 0o600
        )
        self.run("sh", "-c", "exec $(command -v sshd) -f /srv/ssh/sshd_config -E /srv/logs/sshd.log")
        wait_for(f"sshd on {self.name}", self._serves)

    def kill_sshd(self) -> None:
        """End the server and every session: the port refuses."""
        self._kill_servers()
        self.later(self._start_over)

    def restart_sshd(self, **options: str) -> None:
        """Serve with other options: MaxSessions="1", AllowStreamLocalForwarding="no", ForceCommand=…, SetEnv=…"""
        self._restart(options)
        self.later(self._start_over)

    def banner(self, text: str | bytes) -> None:
        """Print something before authentication."""
        self.write("/srv/ssh/banner", text)
        self.restart_sshd(Banner="/srv/ssh/banner")

    def force(self, script: str) -> None:
        """Run a shell script in place of every command and shell; the command is in $SSH_ORIGINAL_COMMAND."""
        self.write("/srv/ssh/forced", f"#!/bin/sh\n{script}\n", 0o755)
        self.restart_sshd(ForceCommand="/srv/ssh/forced")

    def hang_after_login(self) -> None:
        """Every session stops, connection and all, when its first command starts."""
        self.force('kill -STOP "$PPID"; sleep 100000')

    def cut_in_the_middle(self) -> None:
        """The connection breaks while the first command is printing."""
        self.force('sh -c "$SSH_ORIGINAL_COMMAND" | head -c 200; kill -KILL "$PPID"')

    def change_host_key(self) -> None:
        """Another host key under the same address."""
        self.run(
            "sh", "-c", "test -e /srv/ssh/other_key || ssh-keygen -q -t ed25519 -N '' -f /srv/ssh/other_key"
        )
        self.restart_sshd(HostKey="/srv/ssh/other_key")

    def freeze_sshd(self) -> None:
        """The kernel still takes connections; nobody answers on them."""
        self.run("pkill", "-STOP", "-x", _NAMES)
        self.later(self.thaw_sshd)

    def thaw_sshd(self) -> None:
        self.run("pkill", "-CONT", "-x", _NAMES, check=False)

    def _unpunished(self) -> dict[str, str]:
        """From OpenSSH 9.8 on a client that failed before is kept waiting; a test must not feel the one before it."""
        ask = "$(command -v sshd) -t -f /dev/null -h /srv/ssh/host_key -o PerSourcePenalties=no"
        understood = self.run("sh", "-c", ask, check=False).returncode == 0
        return {"PerSourcePenalties": "no"} if understood else {}

    def _start_over(self) -> None:
        self._restart({})

    def _restart(self, options: Mapping[str, str]) -> None:
        self._kill_servers()
        self.start_sshd(options)

    def _kill_servers(self) -> None:
        # whoever comes between two signals has to be met as well: the last look decides
        wait_for(
            f"the end of sshd on {self.name}",
            lambda: self.run("sh", "-c", _KILL, check=False).returncode == 0,
        )

    def _serves(self) -> bool:
        return self.run("sh", "-c", 'kill -0 "$(cat /run/sshd.pid)"', check=False).returncode == 0
