"""What would flip a "no": the smallest single changes and pairs of changes, every one re-planned before it is offered."""

from gpuplan.planning.remedies.search import find_remedies

__all__ = ["find_remedies"]
