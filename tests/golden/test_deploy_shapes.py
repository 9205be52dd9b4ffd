"""What `deploy --dry-run` prints for every way vLLM is started, whole, and what `--export` writes for some.

`GPUPLAN_UPDATE_GOLDEN=1 pytest tests/golden/test_deploy_shapes.py` writes the files anew; the diff is then read like code.
The names of images and the version of gpuplan in a label are part of what is compared.
"""

import pytest

from gpuplan.deploying import export
from gpuplan.present.deployment_text import dry_run_text
from gpuplan.present.document import text_of
from gpuplan.version import __version__
from tests.golden.test_cli import CASES, compare
from tests.unit.deploying.shapes import SHAPES

EXPORTED = ("tensor", "ray-uneven", "secrets")
"""One container; several hosts in an order; secrets."""
KINDS = {"compose": export.compose, "systemd": export.systemd, "script": export.script}
WIDTH = 100


def unversioned(text: str) -> str:
    """The text without gpuplan's own version: a release changes no container."""
    return text.replace(f"io.gpuplan.version={__version__}", "io.gpuplan.version=VERSION").replace(
        f'"io.gpuplan.version": "{__version__}"', '"io.gpuplan.version": "VERSION"'
    )


@pytest.mark.parametrize("name", SHAPES)
def test_dry_run(name: str) -> None:
    text = text_of(dry_run_text(SHAPES[name](), WIDTH))
    compare(f"deploy/{name}", unversioned(text) + "\n")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EXPORTED)
def test_export(name: str, kind: str) -> None:
    files = KINDS[kind](SHAPES[name]())
    text = "".join(f"==== {path}\n{unversioned(body)}" for path, body in files.items())
    compare(f"deploy/export-{name}-{kind}", text)


def test_no_golden_file_is_left_over() -> None:
    wanted = {*SHAPES, *(f"export-{name}-{kind}" for name in EXPORTED for kind in KINDS)}
    assert {path.stem for path in (CASES / "deploy").glob("*.txt")} == wanted
