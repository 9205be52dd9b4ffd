"""Docker's own check of a container: it asks its server's `/health` over HTTP, on a follower too."""

from gpuplan.deploying.addresses import address_with_port
from gpuplan.domain.deployment import HealthCheck

_PYTHON = (
    "import sys,urllib.request as u\n"
    "try: u.build_opener(u.ProxyHandler({})).open(sys.argv[1],timeout=4).close()\n"
    "except OSError as e: sys.exit(str(e))"
)
SCRIPT = (
    f"if command -v python3 >/dev/null 2>&1; then exec python3 -c '{_PYTHON}' \"$1\"; fi; "
    "if command -v curl >/dev/null 2>&1; then exec curl -fsS --noproxy '*' -m 4 -o /dev/null \"$1\"; fi; "
    'unset http_proxy HTTP_PROXY all_proxy ALL_PROXY; exec wget -q -T 4 -O /dev/null "$1"'
)


def health_check(address: str, port: int) -> HealthCheck:
    """Healthy while the server answers 200 on /health: not before its model is loaded (vLLM 0.33,
    `entrypoints/serve/instrumentator/health.py`)."""
    url = f"http://{address_with_port(address, port)}/health"
    return HealthCheck(command=("/bin/sh", "-c", SCRIPT, "gpuplan", url))
