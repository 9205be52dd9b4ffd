"""Secrets in what a host says are masked, and nothing else is."""

import time
from dataclasses import replace

import pytest

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Gpu, GpuProcess, Host, HostFailure
from gpuplan.domain.host_facts import HostFacts
from gpuplan.domain.secret_text import MASK, masked, masked_words, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python serve.py --api-key=sk-abc --port 8000", "python serve.py --api-key=*** --port 8000"),
        ("vllm serve m --api-key one two --port 1", "vllm serve m --api-key *** --port 1"),
        ("run --hf-token hf_x --model m", "run --hf-token *** --model m"),
        ("run --hf_token='a b' x", "run --hf_token='***' x"),
        ("HF_TOKEN=abc AWS_SECRET_ACCESS_KEY=d/e python", "HF_TOKEN=*** AWS_SECRET_ACCESS_KEY=*** python"),
        ("x hf_abcdefghijklmnopqrstuvwxyz y", "x *** y"),
        ("x sk-proj-abcdefghijklmnop y", "x *** y"),
        ('{"api_key": "abc def", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("curl -H 'Authorization: Bearer abc.def' h", "curl -H 'Authorization: Bearer ***' h"),
        ("DOCKER_HOST=tcp://bob:pw@10.0.0.1:2375", "DOCKER_HOST=tcp://***@10.0.0.1:2375"),
        ("dbPassword=hunter2&x=1", "dbPassword=***&x=1"),
    ],
)
def test_secrets_are_masked(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert masked(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m --max-num-batched-tokens 8192 --tokenizer=x --tokenizer-mode auto --max-num-seqs 4",
        "root was not let in; the server takes publickey, password; nobody can be asked for a password here",
        "authentication failed: permission denied (publickey)",
        "ssh://root@h:22 and tcp://h:2375",
        "VLLM::Worker_TP0",
        "/opt/auth/bin/python -m author=joe hf_hub_download",
        "run --hf-token --port 3",
    ],
)
def test_everything_else_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    "piece", ["a", "-", "token", 'token"', "://", "eyJ", "--api-key a ", " -a", 'token="']
)
def test_the_time_is_bounded_whatever_a_host_prints(piece: str) -> None:
    start = time.perf_counter()
    masked(piece * 100_000)
    assert time.perf_counter() - start < 5


def test_a_value_that_was_given_away_is_masked_wherever_it_stands() -> None:
    leak = GpuProcess(pid=1, name="serve --api-key=correct-horse")
    fact = Fact(
        code="GP629", severity=Severity.ERROR, subject={}, figures={"detail": ["no correct-horse", 7], "n": 1}
    )
    host = Host(
        name="h",
        failure=HostFailure(stage="command", detail="said correct-horse"),
        gpus=(Gpu(index=0, name="x", processes=(leak, replace(leak, name="curl correct-horse"))),),
        facts=HostFacts(conditions=(fact,)),
    )
    clean = without_secrets(host)
    assert "correct-horse" not in repr(clean)
    assert [process.name for process in clean.gpus[0].processes] == ["serve --api-key=***", "curl ***"]
    assert clean.facts.conditions[0].figures == {"detail": ["no ***", 7], "n": 1}
    assert without_secrets(clean) == clean


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-key", "one", "two", "--port", "8000"], ["--api-key", MASK, MASK, "--port", "8000"]),
        (["--api-key=one"], [f"--api-key={MASK}"]),
        (["--hf-token", "abc"], ["--hf-token", MASK]),
        (["--max-num-batched-tokens", "8192"], ["--max-num-batched-tokens", "8192"]),
        (["--tokenizer", "org/m", "--max-model-len=9"], ["--tokenizer", "org/m", "--max-model-len=9"]),
        (["serve", "hf_" + "a" * 30], ["serve", MASK]),
    ],
)
def test_the_words_of_a_command_hide_their_secrets(words: list[str], shown: list[str]) -> None:
    assert list(masked_words(words)) == shown
