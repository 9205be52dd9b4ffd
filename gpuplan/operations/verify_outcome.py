"""What is to be tried, nothing of it tried yet."""

from gpuplan.domain.plan import Candidate
from gpuplan.domain.verification import Verification
from gpuplan.operations.deploy_request import Wanted


def outcome_of(wanted: Wanted, candidate: Candidate, name: str, image: str) -> Verification:
    """A candidate as what a trial of it is about."""
    return Verification(
        name=name,
        model=wanted.asked.reference or wanted.model.path,
        image=image,
        vllm_version=str(wanted.version),
        places=tuple(
            (placed.host, tuple(sorted(gpu.index for gpu in placed.gpus))) for placed in candidate.placement
        ),
        predicted=candidate.engine,
        started=None,
    )
