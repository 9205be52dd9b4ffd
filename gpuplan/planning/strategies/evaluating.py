"""What a strategy is, to whoever runs several of them."""

from collections.abc import Callable

from gpuplan.domain.plan import StrategyResult
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import Supply

Evaluate = Callable[[Judge, Supply], StrategyResult]
