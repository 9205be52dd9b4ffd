"""What is really loaded at run time: the static import graph cannot see deferred imports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import gpuplan
from gpuplan.version import __version__

PACKAGE = Path(gpuplan.__file__).parent
CORE = ("units", "errors", "version", "domain", "engine", "planning", "deploying", "present")
FACES = ("operations", "cli")
HEAVY = frozenset({"docker", "huggingface_hub", "paramiko", "pynvml", "textual", "transformers"})
DEVICES = frozenset({"asyncio", "socket", "subprocess"})
"""Standard library modules by which a program reaches out of itself; the interpreter loads none of them."""

_REPORT = """
import importlib, json, sys
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def modules_of(*parts: str) -> list[str]:
    """Every module of these parts of gpuplan, by its dotted name; a part that is not there yet has none."""
    candidates = [
        file for part in parts for file in (PACKAGE / f"{part}.py", *(PACKAGE / part).rglob("*.py"))
    ]
    files = (file.relative_to(PACKAGE.parent) for file in candidates if file.exists())
    return sorted(".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files)


def loaded_by(modules: list[str]) -> set[str]:
    """Top-level names in `sys.modules` of a fresh interpreter that imported these modules."""
    return set(json.loads(_output_of(_REPORT, *modules)))


def _output_of(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout


def test_core_loads_the_standard_library_only() -> None:
    foreign = loaded_by(modules_of(*CORE)) - sys.stdlib_module_names - {"gpuplan"}
    assert not foreign


def test_core_loads_nothing_that_reaches_out() -> None:
    assert not loaded_by(modules_of(*CORE)) & DEVICES


@pytest.mark.parametrize("part", FACES)
def test_faces_load_heavy_libraries_only_where_they_are_used(part: str) -> None:
    assert not loaded_by(modules_of(part)) & HEAVY


def test_version_loads_no_library() -> None:
    code = (
        "import sys; from gpuplan.cli.main import main; sys.argv = ['gpuplan', '--version']; main(); "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    version, loaded = done.stdout.splitlines()
    assert version == f"gpuplan {__version__}"
    assert not set(loaded.split()) & (HEAVY | {"typer", "click", "rich", "pydantic", "yaml"})


@pytest.mark.parametrize("words", [["--help"], ["tui", "--help"], ["tui"], []])
def test_help_loads_no_app(words: list[str]) -> None:
    code = (
        "import sys; from gpuplan.cli.app import run; run(sys.argv[1:]); "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=True
    )
    assert not set(done.stdout.splitlines()[-1].split()) & (HEAVY | {"tomlkit", "yaml", "pydantic"})
