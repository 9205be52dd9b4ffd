"""Whether a container with GPUs could be started on a host as it is: a placement may fit where it cannot."""

from gpuplan.domain.fleet import Host

NO_ENGINE = frozenset(("GP621", "GP622", "GP623", "GP625", "GP627", "GP629"))
"""Docker is not there, not permitted, not running, or not to be spoken with."""
NO_GPUS_IN_CONTAINERS = "GP626"
DRIVER = frozenset(("GP602", "GP603", "GP604"))
"""NVIDIA's driver does not answer, is not the library's version, or hangs."""


def blocking(host: Host, backend: str) -> tuple[str, ...]:
    """Codes of the states that keep a container with GPUs of that backend from starting; none where nothing was probed."""
    conditions = host.facts.conditions
    if not conditions:
        return ()
    codes = NO_ENGINE | (DRIVER | {NO_GPUS_IN_CONTAINERS} if backend == "cuda" else frozenset())
    return tuple(dict.fromkeys(fact.code for fact in conditions if fact.code in codes))
