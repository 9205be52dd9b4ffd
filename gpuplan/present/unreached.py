"""A host that could not be read: what is wrong by the stage it failed at, and what to try."""

_STAGES = {
    "resolve": (
        "its name is not known",
        "correct `address:` in the inventory, or HostName of the host in ~/.ssh/config",
    ),
    "connect": (
        "no connection",
        "is the machine on, is `address:` and `port:` right, does a firewall drop it? Try: ssh -v {address}",
    ),
    "host_key": (
        "its host key is not accepted",
        (
            "a new host: run it on a terminal to see the fingerprint, or --host-key accept-new; a changed key: "
            "ssh-keygen -R {address}, once you know why it changed"
        ),
    ),
    "authenticate": (
        "login refused",
        "put your public key there: ssh-copy-id USER@{address}; or correct `user:` and `identity_file:`",
    ),
    "jump": ("the jump host is not reached", "try the way by hand: ssh -v -J JUMP {address}"),
    "command": (
        "logged in, but it does not answer",
        "does `ssh {address} true` come back? Look at its load, its disk and the login shell's start-up files",
    ),
    "declare": (
        "no hardware is declared",
        "write gpus: {{name: H100-80GB, count: 8}} under the host in the inventory, or leave out --no-probe",
    ),
    "duplicate": (
        "one machine under two names",
        (
            "take one of the names out of the inventory; if they are two machines cloned from one image: "
            "sudo rm /etc/machine-id && sudo systemd-machine-id-setup there, then reboot"
        ),
    ),
    "cancelled": ("broken off", "run it again"),
}


def way_back(stage: str, address: str | None) -> tuple[str, str]:
    """What is wrong, in a few words, and what mends it."""
    headline, fix = _STAGES.get(stage, ("not reached", "run ssh -v {address} by hand"))
    return headline, fix.format(address=address or "HOST")
