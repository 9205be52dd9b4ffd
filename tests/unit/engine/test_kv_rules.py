"""Each rule of the KV cache changes at its release."""

from typing import Any

import pytest

from gpuplan.domain.workload import EngineArguments
from gpuplan.engine import kv_rules
from gpuplan.engine.kv_rules import LatentGroups, StartNeed
from gpuplan.engine.versions import EngineVersion

V = EngineVersion.parse


def asked(**changes: Any) -> EngineArguments:
    return EngineArguments(**changes)


@pytest.mark.parametrize(
    ("version", "engine", "saved"),
    [
        ("0.9.0", {}, False),
        ("0.9.1", {}, True),
        ("0.33.0", {"disable_hybrid_kv_cache_manager": True}, False),
        ("0.21.0", {"kv_transfer_config": {"kv_connector": "NixlConnector"}}, False),
        ("0.22.0", {"kv_transfer_config": {"kv_connector": "NixlConnector"}}, True),
        (
            "0.13.0",
            {
                "kv_transfer_config": {"kv_connector": "NixlConnector"},
                "disable_hybrid_kv_cache_manager": False,
            },
            True,
        ),
    ],
)
def test_windows_are_saved_by_the_hybrid_manager(version: str, engine: dict[str, Any], saved: bool) -> None:
    assert kv_rules.windows_saved(V(version), asked(**engine)) is saved


def test_chunks_are_whole_while_they_cost_latency_and_with_drafts() -> None:
    versions = ("0.10.0", "0.10.1", "0.13.0", "0.14.0", "0.33.0")
    assert [kv_rules.chunks_saved(V(version), asked()) for version in versions] == [
        True,
        False,
        False,
        True,
        True,
    ]
    drafts = asked(speculative_config={"method": "eagle3", "num_speculative_tokens": 2})
    assert not kv_rules.chunks_saved(V("0.33.0"), drafts)


@pytest.mark.parametrize(
    ("version", "engine", "kind", "mode"),
    [
        # off by default up to 0.27, on from 0.28
        ("0.27.1", {}, "gdn", "none"),
        ("0.28.0", {}, "gdn", "align"),
        ("0.28.0", {"enable_prefix_caching": False}, "gdn", "none"),
        # never up to 0.11.0; then Mamba caches every block, others from 0.15 only the last two
        ("0.11.0", {"enable_prefix_caching": True}, "mamba2", "none"),
        ("0.11.1", {"enable_prefix_caching": True}, "mamba2", "all"),
        ("0.14.1", {"enable_prefix_caching": True}, "gdn", "none"),
        ("0.15.0", {"enable_prefix_caching": True}, "gdn", "align"),
        ("0.19.1", {"enable_prefix_caching": True}, "mamba2", "all"),
        ("0.28.0", {"enable_prefix_caching": True}, "mamba2", "align"),
        ("0.28.0", {"enable_prefix_caching": True, "mamba_cache_mode": "all"}, "mamba2", "all"),
        ("0.32.0", {"enable_prefix_caching": True, "mamba_cache_mode": "all"}, "mamba2", "align"),
        ("0.28.0", {"mamba_cache_mode": "all"}, "gdn", "align"),
    ],
)
def test_states_kept(version: str, engine: dict[str, Any], kind: str, mode: str) -> None:
    assert kv_rules.state_mode(V(version), asked(**engine), kind=kind, attention=True) == mode


def test_a_model_of_states_alone_caches_no_prefixes_by_default() -> None:
    assert kv_rules.state_mode(V("0.33.0"), asked(), kind="mamba2", attention=False) == "none"


def test_checkpoints_of_a_prefill_take_a_state_more() -> None:
    cases = [
        ("0.31.0", "mamba2"),
        ("0.32.0", "mamba2"),
        ("0.32.0", "gdn"),
        ("0.33.0", "gdn"),
        ("0.33.0", "kda"),
    ]
    assert [kv_rules.checkpoint_blocks(V(version), kind, "9.0") for version, kind in cases] == [0, 1, 0, 1, 0]
    assert [kv_rules.checkpoint_blocks(V("0.33.0"), "gdn", capability) for capability in ("8.0", "12.1")] == [
        0,
        1,
    ]


@pytest.mark.parametrize(
    ("version", "capability", "latent", "alignment"),
    [
        ("0.11.0", "9.0", False, 16),
        ("0.11.1", "9.0", True, 64),
        ("0.12.0", "10.0", False, 32),
        ("0.12.0", "10.3", False, 16),
        ("0.17.1", "10.3", False, 32),
        ("0.18.0", "10.0", False, 16),
        ("0.20.0", "9.0", True, 64),
        ("0.27.0", "9.0", True, 128),
        ("0.20.0", "9.0", False, 64),
    ],
)
def test_state_alignment(version: str, capability: str, latent: bool, alignment: int) -> None:
    """A block of 64 is asked for: only from 0.20 it is what states are aligned to."""
    assert (
        kv_rules.state_alignment(V(version), capability, latent=latent, head_size=256, block=64) == alignment
    )


@pytest.mark.parametrize(
    ("version", "capability", "sparse", "one_byte", "block"),
    [
        ("0.8.5", "9.0", False, False, 64),
        ("0.8.5", "8.0", False, False, 0),
        ("0.9.2", "10.0", False, False, 0),
        ("0.10.2", "10.0", False, False, 128),
        ("0.15.0", "10.0", False, False, 64),
        ("0.17.1", "12.0", True, False, 64),
        ("0.18.0", "9.0", False, False, 0),
        ("0.18.0", "9.0", False, True, 64),
        ("0.18.0", "10.3", False, False, 32),
    ],
)
def test_blocks_of_latent_kernels(
    version: str, capability: str, sparse: bool, one_byte: bool, block: int
) -> None:
    assert kv_rules.latent_block(V(version), capability, sparse=sparse, one_byte=one_byte) == block


def test_groups_checks_and_shards_by_release() -> None:
    assert [kv_rules.latent_groups(V(v)) for v in ("0.22.1", "0.23.0", "0.27.0", "0.29.0")] == [
        LatentGroups.TUPLES,
        LatentGroups.SLOTS,
        LatentGroups.STACKED,
        LatentGroups.PACKED,
    ]
    assert [kv_rules.start_need(V(v)) for v in ("0.13.0", "0.14.0", "0.18.1", "0.19.0")] == [
        StartNeed.LAYERS,
        StartNeed.FIRST_GROUP,
        StartNeed.FIRST_GROUP,
        StartNeed.GROUPS,
    ]
    shards = [kv_rules.context_shards(V(v), decode=2, prefill=4) for v in ("0.11.2", "0.12.0", "0.26.0")]
    assert shards == [2, 8, 2]
    assert [kv_rules.override_counts(V(v)) for v in ("0.9.0", "0.9.1", "0.9.2")] == [True, False, True]
    assert [kv_rules.override_checked(V(v)) for v in ("0.20.0", "0.20.1")] == [False, True]
