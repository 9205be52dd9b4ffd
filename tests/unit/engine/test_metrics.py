"""`/metrics` of several releases: one engine, several engines, names before and after 0.10, and nonsense."""

from gpuplan.domain.deployment import Load
from gpuplan.engine.metrics import load_of

NOW = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b\\"}c"} 3.0
vllm:num_requests_running{engine="1",model_name="x"} 1.0
vllm:num_requests_waiting{engine="0",model_name="x"} 2.0
vllm:num_requests_waiting{engine="1",model_name="x"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="x",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="x"} 0.125
vllm:kv_cache_usage_perc{engine="1",model_name="x"} 0.5
vllm:request_success_total{engine="0",finished_reason="stop",model_name="x"} 1.2e+03
vllm:request_success_total{engine="0",finished_reason="length",model_name="x"} 34.0
vllm:request_success_created{engine="0",finished_reason="length",model_name="x"} 1.7e+09
"""


def test_engines_are_summed_and_the_fullest_cache_is_told() -> None:
    assert load_of(NOW) == Load(running=4, waiting=2, kv_cache_share=0.5, requests=1234)


def test_the_old_name_of_the_cache() -> None:
    text = 'vllm:num_requests_running{model_name="x"} 0\nvllm:gpu_cache_usage_perc{model_name="x"} 0.75\n'
    assert load_of(text) == Load(running=0, kv_cache_share=0.75)


def test_tokens_read_and_written_are_summed() -> None:
    text = """\
vllm:prompt_tokens_total{engine="0",model_name="x"} 100.0
vllm:prompt_tokens_total{engine="1",model_name="x"} 20.0
vllm:generation_tokens_total{engine="0",model_name="x"} 3.0
vllm:prompt_tokens_created{engine="0",model_name="x"} 1.7e+09
"""
    assert load_of(text) == Load(tokens=123)
    assert load_of("vllm:generation_tokens_total 0.0\n") == Load(tokens=0)


def test_nonsense_is_nothing() -> None:
    assert load_of("") == Load()
    assert load_of("vllm:num_requests_running NaN\nvllm:num_requests_waiting{ 3\n\x00\n") == Load()
    assert load_of("vllm:kv_cache_usage_perc 17\n") == Load(kv_cache_share=1.0)
