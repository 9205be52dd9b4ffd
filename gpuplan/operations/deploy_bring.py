"""Everything a container needs before it is made: image, weights, directories; then the spec is final and has its hash."""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpuplan.deploying.compile import compile_deployment
from gpuplan.deploying.image_probe import SECONDS
from gpuplan.deploying.secrets import RAY_TOKEN
from gpuplan.deploying.spec_hash import secrets_digest, spec_hash
from gpuplan.domain.deployment import SecretValues
from gpuplan.domain.events import Phase
from gpuplan.domain.fact import Fact, Severity
from gpuplan.engine.versions import stated_version
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.container_names import taken_names
from gpuplan.operations.deploy_images import bring_images
from gpuplan.operations.deploy_prepare import Prepared, pinned
from gpuplan.operations.deploy_run import Halted, Run, halted, host_lost
from gpuplan.operations.deploy_weights import bring_weights, prepare_directories
from gpuplan.operations.image_facts import image_facts

if TYPE_CHECKING:
    from gpuplan.deploying.image_probe import ImageFacts


def bring(run: Run, prepared: Prepared, source: str, environ: Mapping[str, str]) -> None:
    """Image and weights on every host afterwards, the spec as it will be created. Raises Halted."""
    hosts = run.spec.hosts
    run.tell.phase(Phase.IMAGE, f"{run.spec.image} on {', '.join(hosts)}")
    brought = bring_images(run.opened, hosts, run.spec.image, policy=source, emit=run.tell, environ=environ)
    if brought.failures:
        raise Halted(Phase.IMAGE, *brought.failures)
    run.image_ids = brought.ids
    facts = _facts(run, hosts[0], environ)
    _require_version(run, prepared, facts)
    request = replace(prepared.compile_request, image_facts=facts)
    run.spec = compile_deployment(request)
    run.secrets = _with_token(prepared.secrets, run)
    if prepared.place is not None and prepared.place.missing:
        run.tell.phase(Phase.WEIGHTS, f"{run.spec.model} on {', '.join(prepared.place.missing)}")
        place = bring_weights(
            run.opened,
            prepared.place,
            prepared.wanted.inventory,
            image_ids=run.image_ids,
            secrets=run.secrets,
            emit=run.tell,
            expected_bytes=prepared.wanted.model.profile.checkpoint_bytes,
            config_only=prepared.workload.engine.load_format == "dummy",
        )
        if place.model is None or place.failures:
            raise Halted(Phase.WEIGHTS, *place.failures)
        run.spec = compile_deployment(replace(request, model=pinned(place, place.model)))
    problems = prepare_directories(run.opened, run.spec, run.tell)
    if problems:
        raise Halted(Phase.WEIGHTS, *problems)
    taken = taken_names(run.opened, run.spec)  # image and weights may have taken an hour
    if taken:
        raise Halted(Phase.CREATE, *taken)
    run.spec_hash = spec_hash(
        run.spec,
        image_ids=run.image_ids,
        secrets_digest=secrets_digest(run.spec.name, run.secrets),
    )


def _facts(run: Run, host: str, environ: Mapping[str, str]) -> "ImageFacts":
    """What is in the image, asked where the leader will run. Raises Halted."""
    asked = on_each({host: partial(image_facts, run.opened, host, run.image_ids[host], environ)}, SECONDS * 2)
    outcome = asked[host]
    if isinstance(outcome, Outcome):
        raise host_lost(Phase.IMAGE, host, outcome.why)
    return outcome


def _require_version(run: Run, prepared: Prepared, facts: "ImageFacts") -> None:
    """The plan is for the release that is in the image (GP816); of a development build only the release counts."""
    found = stated_version(facts.vllm_version or "")
    planned = prepared.wanted.version
    if found is None or found.release[:3] == planned.release[:3]:
        return
    raise halted(
        Phase.IMAGE,
        "GP816",
        {"host": run.spec.hosts[0]},
        what=run.spec.image,
        found=str(found),
        planned=str(planned),
    )


def _with_token(values: SecretValues, run: Run) -> SecretValues:
    """With a token for Ray's nodes, drawn for this deploy, where the spec has a cluster."""
    wanted = {name for container in run.spec.containers for name in container.secrets}
    known = {name: values.reveal(name) for name in values.names}
    if RAY_TOKEN in wanted and RAY_TOKEN not in known:
        known[RAY_TOKEN] = secrets.token_hex(32)
    lacking = wanted - set(known)
    if lacking:
        fact = Fact(
            code="GP828",
            severity=Severity.ERROR,
            subject={"deployment": run.spec.name},
            figures={"names": tuple(sorted(lacking))},
        )
        raise Halted(Phase.IMAGE, fact)
    return SecretValues(known)
