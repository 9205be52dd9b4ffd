"""Whether what is asked for is what runs: one hash over everything that makes the containers.

Equal hashes mean that starting again would start the same thing; what only describes it (who made it, in which words it
was asked for, which figures were predicted) takes no part, so that a newer gpuplan does not replace what runs.
"""

import hashlib
import json
from collections.abc import Mapping

from gpuplan.deploying.create_body import body
from gpuplan.domain.deployment import ContainerSpec, DeploymentSpec, SecretValues
from gpuplan.domain.labels import (
    CLAIMS,
    CREATED_BY,
    GENERATION,
    IMAGE_REFERENCE,
    PREDICTED,
    REQUEST,
    SPEC_HASH,
)

DESCRIBING = frozenset({GENERATION, SPEC_HASH, CREATED_BY, PREDICTED, CLAIMS, REQUEST, IMAGE_REFERENCE})
"""Labels that may differ between deploys of one spec: equal containers may be asked for in several ways."""
MADE_UP = frozenset({"RAY_AUTH_TOKEN"})
"""Secrets that are drawn anew at every deploy: a new value is not a change."""
ROUNDS = 600_000
"""Of PBKDF2 with SHA-256, a third of a second a guess: whoever reads the label cannot try a dictionary on it cheaply."""


def spec_hash(spec: DeploymentSpec, *, image_ids: Mapping[str, str], secrets_digest: str) -> str:
    """SHA-256, in hexadecimal, of the containers, the images they are made from and the secrets given to them.

    `image_ids`: host to the id that the image has there; `secrets_digest` is that of the function of this name.
    """
    containers = [_container(container, image_ids[container.host]) for container in spec.containers]
    document = {"secrets": secrets_digest, "containers": containers}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _container(container: ContainerSpec, image_id: str) -> dict[str, object]:
    labels = {name: value for name, value in container.labels if name not in DESCRIBING}
    return {
        "host": container.host,
        "name": container.name,
        "body": body(container, image=image_id, labels=labels),
        "secrets": sorted(container.secrets),
    }


def secrets_digest(name: str, values: SecretValues) -> str:
    """Hexadecimal digest of the secrets of the deployment called `name`; empty without any that a user chose.

    Salted with the deployment's name, so that equal secrets of two deployments do not show as equal.
    """
    chosen = [[key, values.reveal(key)] for key in values.names if key not in MADE_UP]
    if not chosen:
        return ""
    text = json.dumps(chosen, separators=(",", ":"), ensure_ascii=True)
    salt = f"gpuplan secrets of {name}".encode()
    return hashlib.pbkdf2_hmac("sha256", text.encode(), salt, ROUNDS).hex()
