"""Words about why a deployment failed (GP701 to GP799): the member and its figures, the log's line, the command to run."""

from gpuplan.present.diagnosed_arguments import ARGUMENTS, MODELS
from gpuplan.present.diagnosed_container import CONTAINERS
from gpuplan.present.diagnosed_gpu import GPUS
from gpuplan.present.diagnosed_memory import MEMORY
from gpuplan.present.diagnosed_network import NETWORK
from gpuplan.present.diagnosed_ray import RAY, RUNS
from gpuplan.present.words import Worder

DIAGNOSED = tuple(
    sorted(
        (*CONTAINERS, *GPUS, *MEMORY, *ARGUMENTS, *MODELS, *NETWORK, *RAY, *RUNS), key=lambda item: item.code
    )
)

WORDS: dict[str, Worder] = {item.code: item.worder() for item in DIAGNOSED}
