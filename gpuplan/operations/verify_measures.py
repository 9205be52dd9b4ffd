"""When a trial has heard enough: every engine of it has said what it took, which is its last word before it serves."""

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.engine.startup_log import MilestoneKind

if TYPE_CHECKING:
    from gpuplan.domain.deployment import ContainerSpec
    from gpuplan.engine.startup_log import Milestone
    from gpuplan.operations.deploy_prepare import Prepared


class Measured:
    """What the watch of a trial waits for (`deploy_watch.Measures`)."""

    def __init__(self, prepared: "Prepared") -> None:
        self._engines = max(prepared.candidate.parallelism.data, 1)
        self._ready: Counter[tuple[str, str]] = Counter()
        self._serving: set[int] = set()
        self._servers = {server.number for server in prepared.spec.servers}
        self.awaits = f"{prepared.spec.served_name} to say what it takes"

    @property
    def whole(self) -> bool:
        """Each data-parallel rank has its own engine, which says it once; a server that serves has said it all.

        `init engine (profile, create kv cache, warmup model) took …` comes after the graphs in every release since 0.8.
        """
        return self._ready.total() >= self._engines or self._serving == self._servers

    def hear(self, spec: "ContainerSpec", reached: "Milestone") -> None:
        """A milestone of one container."""
        if reached.kind is MilestoneKind.ENGINE_READY:
            self._ready[spec.host, spec.name] += 1
        elif reached.kind is MilestoneKind.SERVING:
            self._serving.add(spec.server)
