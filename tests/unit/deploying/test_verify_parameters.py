"""What the counting container is asked, and that it is given no GPU, no network and nothing of the host."""

import json
from typing import Any

from gpuplan.deploying.verify_parameters import DIRECTORY, container_body, files, question
from gpuplan.domain.fleet import Gpu
from gpuplan.units import GIB

CARD = Gpu(index=0, name="NVIDIA L40S", total_bytes=44 * GIB, compute_capability="8.9")
CONFIG = {"model_type": "qwen3", "auto_map": {"AutoConfig": "code.Config"}}
WORDS = (
    *("--tensor-parallel-size", "2", "--api-key", "sk-planted-0123456789", "--load-format", "dummy"),
    *("--enable-lora", "--lora-modules", "a=/srv/a", "--max-model-len", "4096"),
)


def asked(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"quantization": None, "gpu": CARD, "ranks": 2, "tensor_ranks": (0, 1)}
    line = question(WORDS, CONFIG, **given | changes)
    assert line is not None
    told: dict[str, Any] = json.loads(line)
    return told


def test_the_question_has_what_decides_the_parameters_and_no_secret() -> None:
    told = asked(quantization={"quantization": {"quant_algo": "FP8"}})
    assert told["words"] == [
        "{model}",
        "--tensor-parallel-size",
        "2",
        "--enable-lora",
        "--max-model-len",
        "4096",
    ]
    model = told["models"]["{model}"]
    assert model["config.json"] == {"model_type": "qwen3"}, "its own code is not in the container"
    assert model["hf_quant_config.json"]["quantization"]["quant_algo"] == "FP8"
    assert told["gpu"]["capability"] == [8, 9]
    assert (told["gpu"]["name"], told["gpu"]["count"]) == ("NVIDIA L40S", 2)
    assert told["tensor_ranks"] == [0, 1]


def test_a_card_of_unknown_capability_is_not_guessed() -> None:
    unknown = Gpu(index=0, name="MI300X", total_bytes=192 * GIB)
    assert question(WORDS, CONFIG, quantization=None, gpu=unknown, ranks=1, tensor_ranks=(0,)) is None


def test_the_container_has_no_gpu_and_ends_alone() -> None:
    body = container_body("sha256:1", (("VLLM_PP_LAYER_PARTITION", "10,12"),))
    assert body["HostConfig"]["NetworkMode"] == "none"
    assert not {"DeviceRequests", "Devices", "Mounts", "Binds"} & set(body["HostConfig"])
    assert {"NVIDIA_VISIBLE_DEVICES=void", "VLLM_PP_LAYER_PARTITION=10,12"} <= set(body["Env"])
    assert body["Labels"]["io.gpuplan.role"] == "helper"
    placed = files('{"words": []}')
    assert placed["request.json"] == b'{"words": []}\n', "the program reads a line"
    assert all(f"{DIRECTORY}/{name}" in body["Cmd"][0] for name in placed)
