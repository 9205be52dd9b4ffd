"""What is a secret, and that it leaves words and variables."""

import pytest

from gpuplan.deploying.secrets import is_secret, secrets_of, split, split_environment, without_values
from gpuplan.deploying.user_words import taken_out
from gpuplan.errors import UsageError


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (("--api-key", "KEY", "--seed", "1"), ("--seed", "1")),
        (("--api-key=KEY",), ()),
        (("--api_key", "KEY", "--enforce-eager"), ("--enforce-eager",)),
        (("--api-k", "KEY"), ()),
        (("--seed", "1", "--api-key", "OLD", "--api-key", "KEY"), ("--seed", "1")),
    ],
)
def test_key_is_found_in_every_spelling(words: tuple[str, ...], kept: tuple[str, ...]) -> None:
    assert split(words) == (kept, {"VLLM_API_KEY": "KEY"})


def test_token_of_the_hub_and_a_bare_flag() -> None:
    assert split(("--hf-token", "T", "--seed", "1")) == (("--seed", "1"), {"HF_TOKEN": "T"})
    assert split(("--hf-token", "--seed", "1")) == (("--seed", "1"), {})


def test_two_keys_are_refused() -> None:
    with pytest.raises(UsageError, match="--api-key"):
        split(("--api-key", "a", "b"))


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("HF_TOKEN", "x", True),
        ("AWS_SECRET_ACCESS_KEY", "x", True),
        ("WANDB_API_KEY", "x", True),
        ("DB_PASSWORD", "x", True),
        ("HF_TOKEN_PATH", "/x", False),
        ("RAY_AUTH_MODE", "token", False),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("VLLM_MAX_TOKENS", "1", False),
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", False),
        ("NCCL_DEBUG", "INFO", False),
        ("PIP_INDEX_URL", "https://user:pass@pypi.lan/simple", True),
        ("PIP_INDEX_URL", "https://pypi.lan/simple", False),
    ],
)
def test_variables(name: str, value: str, secret: bool) -> None:
    assert is_secret(name, value) is secret
    seen, values = split_environment([(name, value)])
    assert (values == {name: value}) is secret
    assert (seen == ((name, value),)) is not secret


def test_words_win_over_variables() -> None:
    assert secrets_of(("--api-key", "word"), [("VLLM_API_KEY", "variable")]) == {"VLLM_API_KEY": "word"}


def test_values_are_masked_wherever_they_stand() -> None:
    document = {"model": "x", "engine_args": ["--api-key", "planted"], "deep": [{"text": "a planted b"}]}
    masked = without_values(document, {"VLLM_API_KEY": "planted"})
    assert "planted" not in repr(masked)
    assert masked["model"] == "x"
    short = without_values({"model": "Qwen/Qwen3", "key": "Qwen3 Qwe"}, {"VLLM_API_KEY": "Qwe"})
    assert short == {"model": "Qwen/Qwen3", "key": "Qwen3 ***"}


def test_words_of_a_flag_are_taken_with_their_values() -> None:
    words = ("--speculative-config.model", "/a", "-dp", "2", "--lora-modules", "a=/b", "c=/d", "--seed", "1")
    kept, found = taken_out(words, ("speculative_config", "data_parallel_size", "lora_modules"))
    assert kept == ("--seed", "1")
    assert found == {
        "speculative_config": ("/a",),
        "data_parallel_size": ("2",),
        "lora_modules": ("a=/b", "c=/d"),
    }
