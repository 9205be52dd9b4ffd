"""Small models on test hosts: real directories with real headers, a few hundred KiB of weights."""

import json
from collections.abc import Mapping

from tests.hosts.machine import Machine
from tests.hosts.stand_in.faults import FILE, MILESTONES
from tests.safetensors_files import safetensors_file

DIRECTORY = "/srv/models"
"""Of every test host; none sees another's."""
_LAYERS, _HIDDEN, _HEADS, _KV_HEADS, _WIDE, _VOCABULARY = 4, 256, 4, 2, 512, 512


def tiny_config(**changes: object) -> dict[str, object]:
    """A Qwen2 of four layers, which vLLM itself loads and serves; `changes` replace keys."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": _HIDDEN,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "intermediate_size": _WIDE,
        "vocab_size": _VOCABULARY,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        **changes,
    }


def tiny_tensors() -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name to dtype and shape, all that the model has."""
    size = _HIDDEN // _HEADS
    tensors: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (_VOCABULARY, _HIDDEN),
        "lm_head.weight": (_VOCABULARY, _HIDDEN),
        "model.norm.weight": (_HIDDEN,),
    }
    for layer in range(_LAYERS):
        at = f"model.layers.{layer}"
        tensors |= {
            f"{at}.self_attn.q_proj.weight": (_HIDDEN, _HIDDEN),
            f"{at}.self_attn.k_proj.weight": (_KV_HEADS * size, _HIDDEN),
            f"{at}.self_attn.v_proj.weight": (_KV_HEADS * size, _HIDDEN),
            f"{at}.self_attn.q_proj.bias": (_HIDDEN,),
            f"{at}.self_attn.k_proj.bias": (_KV_HEADS * size,),
            f"{at}.self_attn.v_proj.bias": (_KV_HEADS * size,),
            f"{at}.self_attn.o_proj.weight": (_HIDDEN, _HIDDEN),
            f"{at}.mlp.gate_proj.weight": (_WIDE, _HIDDEN),
            f"{at}.mlp.up_proj.weight": (_WIDE, _HIDDEN),
            f"{at}.mlp.down_proj.weight": (_HIDDEN, _WIDE),
            f"{at}.input_layernorm.weight": (_HIDDEN,),
            f"{at}.post_attention_layernorm.weight": (_HIDDEN,),
        }
    return {name: ("BF16", shape) for name, shape in tensors.items()}


def lay_model(host: Machine, name: str = "tiny", **changes: object) -> str:
    """Put the model on a host; its path there. `changes` are to its config."""
    path = f"{DIRECTORY}/{name}"
    host.write(f"{path}/config.json", json.dumps(tiny_config(**changes), indent=2))
    host.write(f"{path}/model.safetensors", safetensors_file(tiny_tensors()))
    return path


def shorten(host: Machine, path: str, bytes_left: int = 100_000) -> None:
    """Have the model's weights end too early, as after a download that was cut."""
    host.run("truncate", "-s", str(bytes_left), f"{path}/model.safetensors")


def order(host: Machine, path: str, faults: Mapping[str, Mapping[str, object]]) -> None:
    """Tell the stand-in engines of a host what to do wrong (`stand_in/faults.py`)."""
    for told in faults.values():
        for key in ("exit_after", "hang_after"):
            assert told.get(key) in (None, *MILESTONES), told[key]
    host.write(f"{path}/{FILE}", json.dumps(faults))


def behave(host: Machine, path: str) -> None:
    """Take the orders back."""
    host.run("rm", "-f", f"{path}/{FILE}")
