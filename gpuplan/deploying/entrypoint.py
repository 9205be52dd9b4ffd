"""What a container starts: the command itself, or a shell that prepares its surroundings and then becomes the command."""

from collections.abc import Sequence

from gpuplan.domain.deployment import SECRETS_DIRECTORY

PACKAGES = "PYPI_PACKAGES_INSTALL"
_INSTALL = (
    f'if [ -n "${PACKAGES}" ]; then if command -v uv >/dev/null 2>&1; then '
    'uv pip install --python "$(command -v python3)" --break-system-packages '
    f'${{PIP_INDEX_URL:+--index-url "$PIP_INDEX_URL"}} ${PACKAGES}; '
    f"else python3 -m pip install ${PACKAGES}; fi; fi"
)
"""uv, else pip, from the index the variables name (S1.17)."""
_ASCEND = (
    "for file in /usr/local/Ascend/ascend-toolkit/set_env.sh /usr/local/Ascend/nnal/atb/set_env.sh; do "
    'if [ -r "$file" ]; then . "$file"; fi; done'
)
"""Images of vllm-ascend set their library paths in a login shell only."""


def started(
    command: Sequence[str], *, exported: Sequence[str] = (), packages: bool = False, ascend: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(entrypoint, command): the first two words are the entrypoint where nothing is to be prepared.

    `exported` are names of secrets whose files become variables; their values are in no argument.
    """
    steps = [_ASCEND] if ascend else []
    steps.append("set -e")
    if exported:
        read = f'value=$(cat "{SECRETS_DIRECTORY}/$name"); export "$name=$value"'
        steps.append(f"for name in {' '.join(exported)}; do {read}; done; unset name value")
    if packages:
        steps.append(_INSTALL)
    if len(steps) == 1:
        return tuple(command[:2]), tuple(command[2:])
    shell = "/bin/bash" if ascend else "/bin/sh"
    return (shell, "-c", "; ".join([*steps, 'exec "$@"']), "gpuplan"), tuple(command)
