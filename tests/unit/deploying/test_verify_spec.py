"""A trial is the deployment but for its weights, its ear to the outside and its end."""

import pytest

from gpuplan.deploying.verify_spec import LASTS_SECONDS, is_trial, trial_name, trial_of, trial_words
from gpuplan.domain.deployment import ContainerRole, ContainerSpec, DeploymentSpec
from gpuplan.engine.arguments import parse
from gpuplan.engine.versions import DEFAULT
from gpuplan.errors import UsageError


def words(*given: str, quantization: str | None = None, tokenizer: bool = True) -> tuple[str, ...]:
    return trial_words(parse(given, version=DEFAULT, model_given=True), quantization, tokenizer=tokenizer)


def test_the_users_words_stay_but_for_those_of_a_loader() -> None:
    given = (
        "--max-num-seqs",
        "64",
        "--load-format",
        "runai_streamer",
        "--model-loader-extra-config",
        '{"a": 1}',
    )
    assert words(*given) == ("--max-num-seqs", "64", "--load-format", "dummy")
    adapters = ("--enable-lora", "--lora-modules", "a=/srv/a", "b=/srv/b", "--max-loras", "2")
    assert words(*adapters) == ("--enable-lora", "--max-loras", "2", "--load-format", "dummy")


def test_a_tokenizer_that_is_nowhere_is_not_asked_for() -> None:
    assert words(tokenizer=False)[-1] == "--skip-tokenizer-init"
    assert words("--skip-tokenizer-init", tokenizer=False).count("--skip-tokenizer-init") == 1


@pytest.mark.parametrize(
    ("given", "quantization"),
    [
        (("--quantization", "bitsandbytes"), None),
        ((), "bitsandbytes"),
        ((), "gguf"),
        (("--load-format", "gguf"), None),
    ],
)
def test_weights_the_engine_reads_whatever_it_is_told(
    given: tuple[str, ...], quantization: str | None
) -> None:
    with pytest.raises(UsageError, match="reads the weights"):
        words(*given, quantization=quantization)


def test_names_stay_within_what_a_deployment_may_be_called() -> None:
    assert trial_name("qwen3-32b") == "verify-qwen3-32b"
    assert len(trial_name("x" * 48)) <= 48
    assert trial_name("a" * 40 + "-b").endswith("a")


def spec() -> DeploymentSpec:
    one = ContainerSpec(
        host="h1",
        name="gpuplan-verify-x-s0n0",
        role=ContainerRole.SINGLE,
        image="i",
        entrypoint=("vllm", "serve"),
        command=("m", "--port", "1"),
        labels=(("io.gpuplan.managed", "true"),),
    )
    return DeploymentSpec(
        name="verify-x",
        model="m",
        served_name="m",
        vllm_version="0.33.0",
        image="i",
        servers=(),
        containers=(one,),
    )


def test_a_trial_is_marked_and_ends_by_itself() -> None:
    [container] = trial_of(spec(), shell=True).containers
    assert is_trial(dict(container.labels))
    assert dict(container.labels)["io.gpuplan.managed"] == "true"
    assert container.entrypoint[:2] == ("/bin/sh", "-c")
    assert container.entrypoint[-1] == str(LASTS_SECONDS)
    assert container.command == ("vllm", "serve", "m", "--port", "1")
    [bare] = trial_of(spec(), shell=False).containers
    assert bare.entrypoint == ("vllm", "serve"), "an image without a shell cannot be bounded"
    assert not is_trial(dict(spec().containers[0].labels))
