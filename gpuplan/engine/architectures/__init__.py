"""From a `config.json` to a ModelProfile: `describe` is the one way in."""

from gpuplan.engine.architectures.describe import describe

__all__ = ["describe"]
