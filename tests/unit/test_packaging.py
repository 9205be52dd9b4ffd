"""What is shipped agrees with itself: the lock with the project, the README with CI."""

import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

PUBLIC_HOSTS = {"pypi.org", "files.pythonhosted.org"}


def _lock(repository: Path) -> dict[str, list[dict[str, object]]]:
    return tomllib.loads((repository / "uv.lock").read_text(encoding="utf-8"))


def _addresses(node: object) -> set[str]:
    match node:
        case dict():
            here = {str(node[key]) for key in ("url", "registry") if key in node}
            return here.union(*(_addresses(value) for value in node.values()))
        case list():
            return set().union(*(_addresses(value) for value in node))
        case _:
            return set()


def test_lock_names_public_hosts_only(repository: Path) -> None:
    hosts = {urlsplit(address).hostname for address in _addresses(_lock(repository))}
    assert hosts == PUBLIC_HOSTS


def test_lock_is_of_this_project(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    (own,) = (package for package in _lock(repository)["package"] if package["name"] == project["name"])
    metadata = own["metadata"]
    assert isinstance(metadata, dict)
    locked = {f"{entry['name']}{entry['specifier']}" for entry in metadata["requires-dist"]}
    assert locked == {requirement.lower().replace("_", "-") for requirement in wanted}


@pytest.mark.parametrize("marker", ["run", "test"])
def test_readme_has_the_commands_that_ci_runs(repository: Path, marker: str) -> None:
    _, _, after = (repository / "README.md").read_text(encoding="utf-8").partition(f"<!-- ci: {marker} -->\n")
    assert after.startswith("```bash\n")
    assert f"readme_command {marker}" in (repository / ".ci/run").read_text(encoding="utf-8")
