"""Logins for registries, as `docker login` stores them: in the file, in helpers, and not at all."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from gpuplan.remote.registry_login import LoginUnreadable, RegistryLogin, registry_login

AUTH = base64.b64encode(b"me:hunter2").decode()


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(document: Any) -> dict[str, str]:
        directory = tmp_path / ".docker"
        directory.mkdir(exist_ok=True)
        (directory / "config.json").write_text(json.dumps(document))
        return {"HOME": str(tmp_path), "PATH": str(tmp_path / "bin")}

    return write


def secret(login: RegistryLogin | None) -> Any:
    assert login is not None
    return json.loads(base64.urlsafe_b64decode(login.header()))


@pytest.mark.parametrize(
    ("stored", "reference"),
    [
        ("r.example.com:5000", "r.example.com:5000/a/b:1"),
        ("https://r.example.com:5000/v2/", "r.example.com:5000/a@sha256:1"),
        ("https://index.docker.io/v1/", "vllm/vllm-openai:v0.33.0"),
        ("https://index.docker.io/v1/", "ubuntu"),
    ],
)
def test_a_stored_login_is_found_by_the_registry(config: Any, stored: str, reference: str) -> None:
    login = registry_login(reference, config({"auths": {stored: {"auth": AUTH}, "other": {"auth": AUTH}}}))

    assert secret(login)["password"] == "hunter2"
    assert "hunter2" not in repr(login)
    assert AUTH not in str(login)


def test_where_there_is_no_login_there_is_none(config: Any, tmp_path: Path) -> None:
    assert registry_login("a:1", {"HOME": str(tmp_path)}) is None
    assert registry_login("a:1", config({"auths": {"other": {"auth": AUTH}}})) is None
    assert registry_login("a:1", config({})) is None


def test_another_directory_may_be_named(config: Any, tmp_path: Path) -> None:
    environ = config({"auths": {"r.io": {"auth": AUTH}}})
    (tmp_path / "empty").mkdir()

    assert registry_login("r.io/a", {"DOCKER_CONFIG": f"{environ['HOME']}/.docker"}) is not None
    assert registry_login("r.io/a", {**environ, "DOCKER_CONFIG": str(tmp_path / "empty")}) is None


@pytest.mark.parametrize("document", [{"credsStore": "test"}, {"credHelpers": {"r.io": "test"}}])
def test_a_credential_helper_is_asked(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Any
) -> None:
    (tmp_path / "bin").mkdir()
    helper = tmp_path / "bin" / "docker-credential-test"
    helper.write_text('#!/bin/sh\nread r; echo "{\\"Username\\": \\"<token>\\", \\"Secret\\": \\"$r\\"}"\n')
    helper.chmod(0o755)
    environ = config(document)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")

    login = registry_login("r.io/a", {**environ, "PATH": f"{tmp_path}/bin:/usr/bin:/bin"})

    assert secret(login)["IdentityToken"] == "r.io"


@pytest.mark.parametrize(
    "document", [{"credsStore": "missing"}, {"auths": {"r.io": 7}}, {"auths": {"r.io": {"auth": "?"}}}]
)
def test_logins_that_make_no_sense_are_told(config: Any, document: Any) -> None:
    with pytest.raises(LoginUnreadable, match=r"config\.json"):
        registry_login("r.io/a", config(document))
