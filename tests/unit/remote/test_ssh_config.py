"""What an SSH configuration means, checked against the ssh client itself where it is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuplan.domain.inventory import HostEntry
from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.ssh_config import HostSettings, SshConfig
from gpuplan.remote.ssh_config_files import ConfigUnusable, matches
from gpuplan.remote.ssh_route import jump_entry, route_to
from gpuplan.remote.ssh_settings import SshSettings

SSH = shutil.which("ssh")


def _config(home: Path, text: str, **environ: str) -> SshConfig:
    (home / ".ssh").mkdir(exist_ok=True)
    path = home / ".ssh" / "config"
    path.write_text(text)
    path.chmod(0o600)
    return SshConfig(home, home / "none", environ)


def test_without_a_file_the_name_is_the_host(tmp_path: Path) -> None:
    found = SshConfig(tmp_path, tmp_path / "none", {}).lookup("gpu1")
    assert found == HostSettings(host_name="gpu1")


CONFIGURATION = """\
# the first value counts
User first
Host gpu? !gpu9
    HostName %h.cluster.example
    Port=2222
    User second
    IdentityFile "~/.ssh/%n key"
    IdentityFile /keys/%h-%p-%r
    IdentitiesOnly yes
Host GPU1
    ConnectTimeout 77
Host a b c*
  HostKeyAlias "shared name"
  ProxyJump me@bastion:2022
  ProxyCommand nc %h %p
Match host *.cluster.example user first
    ServerAliveInterval 33
Match !host *.cluster.example originalhost a,b
    ConnectTimeout 5
Host gpu9
  ProxyCommand  ssh -W "[%h]:%p"  gate # part of the command
  ProxyJump never
Match all
  UserKnownHostsFile ~/.ssh/kh1 /kh/%n
"""
KEYS = {
    "hostname": "host_name",
    "user": "user",
    "port": "port",
    "identityfile": "identity_files",
    "identitiesonly": "identities_only",
    "proxyjump": "proxy_jump",
    "proxycommand": "proxy_command",
    "userknownhostsfile": "user_known_hosts",
    "hostkeyalias": "host_key_alias",
    "connecttimeout": "connect_timeout",
    "serveraliveinterval": "alive_interval",
}


@pytest.mark.skipif(SSH is None, reason="needs the ssh client to compare with")
@pytest.mark.parametrize("alias", ["gpu1", "gpu9", "a", "b", "cc", "other", "GPU1"])
def test_as_the_ssh_client_reads_it(alias: str, tmp_path: Path) -> None:
    assert SSH is not None
    found = _config(tmp_path, CONFIGURATION).lookup(alias)
    printed = subprocess.run(
        [SSH, "-G", "-F", str(tmp_path / ".ssh" / "config"), alias],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    expected: dict[str, list[str]] = {}
    for line in printed.splitlines():
        key, _, value = line.partition(" ")
        expected.setdefault(key, []).append(value)

    def said(key: str) -> list[str]:
        return expected.get(key, [])

    assert said("hostname") == [found.host_name]
    assert said("user") == [found.user]
    assert said("port") == [str(found.port or 22)]
    assert said("hostkeyalias") == ([found.host_key_alias] if found.host_key_alias else [])
    assert said("connecttimeout") == [f"{found.connect_timeout:g}" if found.connect_timeout else "none"]
    assert said("serveraliveinterval") == [str(found.alive_interval or 0)]
    assert said("identitiesonly") == ["yes" if found.identities_only else "no"]
    assert said("proxyjump") == ([found.proxy_jump] if found.proxy_jump else [])
    # ssh -G prints these before their tokens are replaced
    assert len(said("proxycommand")) == (1 if found.proxy_command else 0)
    if found.identity_files:
        assert len(said("identityfile")) == len(found.identity_files)
    assert len(said("userknownhostsfile")[0].split()) == len(found.user_known_hosts or ())


def test_tokens_and_home(tmp_path: Path) -> None:
    found = _config(tmp_path, CONFIGURATION).lookup("gpu1")
    assert found.identity_files == (f"{tmp_path}/.ssh/gpu1 key", "/keys/gpu1.cluster.example-2222-first")
    assert found.user_known_hosts == (f"{tmp_path}/.ssh/kh1", "/kh/gpu1")
    assert (
        _config(tmp_path, CONFIGURATION).lookup("gpu9").proxy_command
        == 'ssh -W "[gpu9]:22"  gate # part of the command'
    )


def test_what_is_chosen_already_wins_and_fills_the_tokens(tmp_path: Path) -> None:
    found = _config(tmp_path, CONFIGURATION).lookup("gpu1", user="root", port=22)
    assert (found.user, found.port, found.alive_interval) == ("root", 22, None)
    assert found.identity_files[1] == "/keys/gpu1.cluster.example-22-root"


def test_includes(tmp_path: Path) -> None:
    config = _config(
        tmp_path,
        "Host x\n Include only-x\nInclude conf.d/*.conf absent\nInclude ~/more\nUser last\n",
    )
    (tmp_path / ".ssh" / "only-x").write_text("Port 1\nHost y\n Port 2\n")
    (tmp_path / ".ssh" / "conf.d").mkdir()
    (tmp_path / ".ssh" / "conf.d" / "a.conf").write_text("Host y\n User why\n")
    (tmp_path / ".ssh" / "conf.d" / "b.txt").write_text("User wrong\n")
    (tmp_path / "more").write_text("Host x y\n  Include deeper\n")
    (tmp_path / ".ssh" / "deeper").write_text("ServerAliveInterval 4\n")
    x, y, z = (config.lookup(name) for name in "xyz")
    assert (x.port, x.user, x.alive_interval) == (1, "last", 4)
    assert (y.port, y.user, y.alive_interval) == (None, None, None)
    assert (z.port, z.user, z.alive_interval) == (None, None, None)


def test_includes_at_the_top(tmp_path: Path) -> None:
    config = _config(tmp_path, "Include conf.d/*.conf absent\nInclude ~/more\nUser last\n")
    (tmp_path / ".ssh" / "conf.d").mkdir()
    (tmp_path / ".ssh" / "conf.d" / "a.conf").write_text("Host y\n User why\n")
    (tmp_path / ".ssh" / "conf.d" / "b.txt").write_text("User wrong\n")
    (tmp_path / "more").write_text("Host x y\n  Include deeper\n")
    (tmp_path / ".ssh" / "deeper").write_text("ServerAliveInterval 4\n")
    x, y, z = (config.lookup(name) for name in "xyz")
    assert (x.user, x.alive_interval) == ("last", 4)
    assert (y.user, y.alive_interval) == ("why", 4)
    assert (z.user, z.alive_interval) == ("last", None)


def test_an_include_that_includes_itself_ends(tmp_path: Path) -> None:
    with pytest.raises(ConfigUnusable, match=r"config:1: more than 16 Includes"):
        _config(tmp_path, "Include config\n").lookup("x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\nPort many\n", r"config:2: port is not a number"),
        ("Port 70000\n", r"config:1: port is not a number from 1 to 65535"),
        ('User "open\n', r"config:1: a quote is not closed"),
        ("User\n", r"config:1: user has no value"),
        ("IdentityFile /x/%q\n", r"config:1: identityfile knows no %q"),
        ("IdentityFile ${NOT_SET}/x\n", r"config:1: the environment has no NOT_SET"),
    ],
)
def test_a_bad_line_is_named(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigUnusable, match=problem):
        _config(tmp_path, text).lookup("x")
    settings = SshSettings(known_hosts=tmp_path / "k", home=tmp_path, system_config=tmp_path / "none")
    with pytest.raises(ConnectionFailed, match="the SSH configuration") as caught:
        route_to(HostEntry(name="x", address="x"), settings, _config(tmp_path, text))
    assert caught.value.stage is Stage.RESOLVE


def test_a_line_for_other_hosts_is_no_trouble(tmp_path: Path) -> None:
    assert _config(tmp_path, "Host y\n Port many\n").lookup("x").port is None


@pytest.mark.skipif(SSH is None, reason="needs the ssh client")
def test_what_only_the_client_can_tell(tmp_path: Path) -> None:
    config = _config(tmp_path, "Match exec true\n Port 77\n ProxyCommand nc %h %p\nHost *\n User someone\n")
    found = config.lookup("h")
    assert (found.port, found.user, found.proxy_command) == (77, "someone", "nc h 77")
    alone = _config(tmp_path, "Match exec true\n Port 77\n", PATH=str(tmp_path))
    with pytest.raises(ConfigUnusable, match=r"config:1: Match exec can be read by the ssh client only"):
        alone.lookup("h")


def test_proxy_jump_or_command_whichever_is_first(tmp_path: Path) -> None:
    first = _config(tmp_path, "ProxyJump a\nProxyCommand b\n").lookup("h")
    assert (first.proxy_jump, first.proxy_command) == ("a", None)
    second = _config(tmp_path, "ProxyCommand b\nProxyJump a\n").lookup("h")
    assert (second.proxy_jump, second.proxy_command) == (None, "b")
    off = _config(tmp_path, "ProxyJump none\nProxyCommand b\n").lookup("h")
    assert (off.proxy_jump, off.proxy_command) == (None, None)


@pytest.mark.parametrize(
    ("name", "patterns", "expected"),
    [
        ("gpu1", ["gpu*"], True),
        ("gpu1", ["gpu*", "!gpu1"], False),
        ("gpu1", ["!gpu2"], False),
        ("gpu1", ["gpu[1]"], False),
        ("a", ["?"], True),
    ],
)
def test_patterns(name: str, patterns: list[str], expected: bool) -> None:
    assert matches(name, patterns) is expected


def test_jump_hosts_are_read() -> None:
    inventory = {
        "bastion": HostEntry(name="bastion", address="10.0.0.1", user="u", port=22, identity_file="/k")
    }
    assert jump_entry("bastion", inventory) == inventory["bastion"]
    other = jump_entry("me@bastion:2022", inventory)
    assert (other.address, other.user, other.port, other.identity_file) == ("10.0.0.1", "me", 2022, "/k")
    plain = jump_entry("ssh://me@gate:23", {})
    assert (plain.address, plain.user, plain.port) == ("gate", "me", 23)
    six = jump_entry("[fe80::1]:2", {})
    assert (six.address, six.port) == ("fe80::1", 2)
    assert jump_entry("2001:db8::1", {}).address == "2001:db8::1"
    for bad in ("", "@h", "h:port", "h:0", "u@"):
        with pytest.raises(ConnectionFailed, match="not of the form"):
            jump_entry(bad, {})


def test_the_inventory_wins(tmp_path: Path) -> None:
    config = _config(
        tmp_path,
        "Host h\n HostName far\n User other\n Port 9\n IdentityFile /c\n ProxyJump gate\n IdentityAgent none\n",
    )
    settings = SshSettings(known_hosts=tmp_path / "k", home=tmp_path, system_config=tmp_path / "none")
    route = route_to(HostEntry(name="h", address="h"), settings, config)
    assert (route.host, route.port, route.jumps) == ("far", 9, ("gate",))
    assert (route.credentials.user, route.credentials.agent) == ("other", None)
    entry = HostEntry(name="h", address="h", user="me", port=22, identity_file="~/k", jump="none")
    route = route_to(entry, settings, config)
    assert (route.host, route.port, route.jumps, route.credentials.user) == ("far", 22, (), "me")
    assert route.credentials.inventory_file == tmp_path / "k"
    assert route.credentials.config_files == (Path("/c"),)
