"""known_hosts files: every form of a line, what is refused, and how keys are added."""

import hmac
import threading
from base64 import b64encode
from pathlib import Path

import pytest

from gpuplan.remote.connection import ConnectionFailed
from gpuplan.remote.host_keys import HostKey, HostKeys, Known, judge, refusal
from gpuplan.remote.ssh_settings import HostKeyPolicy


def _key(number: int, kind: str = "ssh-ed25519") -> HostKey:
    name = kind.encode()
    return HostKey(blob=len(name).to_bytes(4, "big") + name + (32).to_bytes(4, "big") + bytes([number]) * 32)


def _text(key: HostKey) -> str:
    return f"{key.kind} {b64encode(key.blob).decode()}"


def _hashed(name: str) -> str:
    salt = b"0123456789abcdefghij"
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{b64encode(salt).decode()}|{b64encode(digest).decode()}"


def _known(tmp_path: Path, text: str, host: str = "gpu1", port: int = 22, alias: str | None = None) -> Known:
    path = tmp_path / "known_hosts"
    path.write_text(text)
    return HostKeys(tmp_path / "own").known(host, port, alias, [path])


@pytest.mark.parametrize(
    ("hosts", "host", "port"),
    [
        ("gpu1", "gpu1", 22),
        ("a,gpu1,b", "GPU1", 22),
        ("[gpu1]:2222", "gpu1", 2222),
        ("gpu*", "gpu1", 22),
        ("*,!gpu2", "gpu1", 22),
        ("[gpu?]:*", "gpu1", 2222),
        (_hashed("gpu1"), "gpu1", 22),
        (_hashed("[gpu1]:2222"), "gpu1", 2222),
        ("10.0.0.1", "10.0.0.1", 22),
        ("gpu1", "gpu1", 2222),
    ],
)
def test_a_known_key(hosts: str, host: str, port: int, tmp_path: Path) -> None:
    text = f"# comment\n\ngarbage\nx ssh-ed25519 !!!\n{hosts} {_text(_key(1))} comment here\n"
    assert judge(_known(tmp_path, text, host, port), _key(1))


@pytest.mark.parametrize(
    ("hosts", "host", "port"),
    [("gpu2", "gpu1", 22), ("*,!gpu1", "gpu1", 22), (_hashed("gpu2"), "gpu1", 22), ("[gpu1]:23", "gpu1", 24)],
)
def test_an_unknown_host(hosts: str, host: str, port: int, tmp_path: Path) -> None:
    assert not judge(_known(tmp_path, f"{hosts} {_text(_key(1))}\n", host, port), _key(1))


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ssh-rsa"])
def test_a_changed_key_names_the_line_and_both_fingerprints(kind: str, tmp_path: Path) -> None:
    old, new = _key(1), _key(2, kind)
    with pytest.raises(ConnectionFailed) as caught:
        judge(_known(tmp_path, f"\ngpu1 {_text(old)}\n"), new)
    assert f"{tmp_path / 'known_hosts'}:2" in caught.value.detail
    assert old.fingerprint in caught.value.detail
    assert new.fingerprint in caught.value.detail


def test_any_of_several_keys_will_do(tmp_path: Path) -> None:
    text = "".join(f"gpu1 {_text(_key(number))}\n" for number in (1, 2, 3))
    assert judge(_known(tmp_path, text), _key(3))


def test_the_key_of_the_host_at_port_22_vouches_and_does_not_contradict(tmp_path: Path) -> None:
    text = f"gpu1 {_text(_key(1))}\n"
    assert judge(_known(tmp_path, text, port=2222), _key(1))
    assert not judge(_known(tmp_path, text, port=2222), _key(2))


def test_an_alias_stands_for_name_and_port(tmp_path: Path) -> None:
    known = _known(tmp_path, f"cluster {_text(_key(1))}\n", "10.0.0.9", 2222, "cluster")
    assert judge(known, _key(1))
    assert known.name == "cluster"


def test_a_revoked_key_is_refused_even_where_it_is_known(tmp_path: Path) -> None:
    text = f"gpu1 {_text(_key(1))}\n@revoked * {_text(_key(1))}\n"
    with pytest.raises(ConnectionFailed, match=r"revoked by .*known_hosts:2"):
        judge(_known(tmp_path, text), _key(1))
    assert not judge(_known(tmp_path, f"@revoked * {_text(_key(1))}\n"), _key(2))


def test_an_authority_does_no_harm_and_is_the_reason_when_there_is_no_key(tmp_path: Path) -> None:
    text = f"@cert-authority *.example,gpu1 {_text(_key(9))}\n"
    assert judge(_known(tmp_path, f"{text}gpu1 {_text(_key(1))}\n"), _key(1))
    known = _known(tmp_path, text)
    assert not judge(known, _key(1))
    failure = refusal(known, _key(1), HostKeyPolicy.STRICT, declined=False)
    assert "known_hosts:1 trusts an authority" in failure.detail
    assert _key(1).fingerprint in failure.detail


def test_known_types_are_proposed_first(tmp_path: Path) -> None:
    known = _known(tmp_path, f"gpu1 {_text(_key(1, 'ssh-rsa'))}\n")
    supported = ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256")
    assert known.algorithms(supported) == (
        "rsa-sha2-512",
        "rsa-sha2-256",
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
    )
    assert _known(tmp_path, "").algorithms(supported) == supported


def test_a_file_that_is_not_text_or_not_readable(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"\xff\xfe\x00 ssh-ed25519 x\n@ a b\n|1|x y z\n|1|a|b ssh-ed25519 AAAA\n")
    assert HostKeys(tmp_path / "own").known("h", 22, None, [path]).keys == ()
    with pytest.raises(ConnectionFailed, match="cannot be read"):
        HostKeys(tmp_path / "own").known("h", 22, None, [tmp_path])


def test_keys_are_added_by_many_threads_line_by_line(tmp_path: Path) -> None:
    own = tmp_path / "new" / "known_hosts"
    keys = HostKeys(own)
    threads = [
        threading.Thread(target=lambda n=number: keys.remember(f"h{n}", _key(n))) for number in range(64)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert own.stat().st_mode & 0o777 == 0o600
    assert len(own.read_text().splitlines()) == 64
    assert all(judge(keys.known(f"h{number}", 22, None, []), _key(number)) for number in range(64))


def test_a_last_line_without_an_end_is_not_joined(tmp_path: Path) -> None:
    own = tmp_path / "known_hosts"
    own.write_text(f"h1 {_text(_key(1))}")
    keys = HostKeys(own)
    keys.remember("h2", _key(2))
    assert judge(keys.known("h1", 22, None, []), _key(1))
    assert judge(keys.known("h2", 22, None, []), _key(2))
