"""Which builder describes which architecture, by the names of vLLM's own model registry.

A family's module is imported when one of its architectures is asked for: a plan needs one of them.
"""

from importlib import import_module

from gpuplan.engine.architectures.context import Builder

PACKAGE = "gpuplan.engine.architectures"
FAMILIES: dict[str, tuple[str, ...]] = {
    "audio": (
        "WhisperForConditionalGeneration",
        "VoxtralForConditionalGeneration",
        "Qwen2AudioForConditionalGeneration",
    ),
    "deepseek": (
        "DeepseekForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "GlmMoeDsaForCausalLM",
        "MistralLarge3ForCausalLM",
        "AXK1ForCausalLM",
        "PanguUltraMoEForCausalLM",
    ),
    "deepseek_v4": (
        "DeepseekV4ForCausalLM",
        "DeepseekV4ForConditionalGeneration",
    ),
    "dense": (
        "LlamaForCausalLM",
        "Qwen2ForCausalLM",
        "MiMoForCausalLM",
        "Qwen3ForCausalLM",
    ),
    "drafts": (
        "EagleLlamaForCausalLM",
        "Eagle3LlamaForCausalLM",
        "LlamaForCausalLMEagle3",
        "Eagle3MiniMaxM2ForCausalLM",
        "Eagle3Qwen2_5vlForCausalLM",
        "Eagle3Qwen3vlForCausalLM",
        "Eagle3Qwen3ForCausalLM",
        "PEagleDraftModel",
        "PeagleLlamaForCausalLM",
        "PeagleQwen3ForCausalLM",
        "DFlashDraftModel",
        "MuseGlimmerAssistantModel",
        "DFlashMuseGlimmerAssistantModel",
        "MedusaModel",
    ),
    "encoders": (
        "BertModel",
        "BertForMaskedLM",
        "BertSpladeSparseEmbeddingModel",
        "BertForSequenceClassification",
        "BertForTokenClassification",
        "RobertaModel",
        "RobertaForMaskedLM",
        "RobertaForSequenceClassification",
        "RobertaForTokenClassification",
        "XLMRobertaModel",
        "XLMRobertaForSequenceClassification",
        "XLMRobertaForTokenClassification",
        "ModernBertModel",
        "ModernBertForSequenceClassification",
        "ModernBertForTokenClassification",
        "ModernBertForMaskedLM",
        "GteModel",
        "GteNewModel",
        "NewModel",
        "NomicBertModel",
        "GteNewForSequenceClassification",
    ),
    "gemma": (
        "GemmaForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma2Model",
        "Gemma3ForCausalLM",
        "Gemma3TextModel",
        "Gemma3ForConditionalGeneration",
    ),
    "gemma3n": (
        "Gemma3nForCausalLM",
        "Gemma3nForConditionalGeneration",
    ),
    "gemma4": (
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
    ),
    "glm": ("Glm4MoeLiteForCausalLM",),
    "glm_vision": (
        "Glm4vForConditionalGeneration",
        "Glm4vMoeForConditionalGeneration",
        "GlmOcrForConditionalGeneration",
    ),
    "gpt_oss": ("GptOssForCausalLM",),
    "gpt_style": (
        "BloomForCausalLM",
        "ChatGLMModel",
        "ChatGLMForConditionalGeneration",
        "FalconForCausalLM",
        "GPT2LMHeadModel",
        "GPTJForCausalLM",
        "OPTForCausalLM",
    ),
    "hybrid": (
        "MambaForCausalLM",
        "FalconMambaForCausalLM",
        "Mamba2ForCausalLM",
        "JambaForCausalLM",
        "JambaForSequenceClassification",
        "BambaForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "FalconH1ForCausalLM",
    ),
    "hybrid_vision": (
        "Lfm2VlForConditionalGeneration",
        "NemotronH_Nano_VL_V2",
        "NemotronH_Nano_Omni_Reasoning_V3",
        "NemotronH_Super_Omni_Reasoning_V3",
        "NemotronH_Omni_Reasoning_V3",
    ),
    "kimi": (
        "KimiK25ForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "KimiLinearForCausalLM",
        "KimiVLForConditionalGeneration",
    ),
    "lfm2": (
        "Lfm2ForCausalLM",
        "Lfm2MoeForCausalLM",
    ),
    "llama4": (
        "Llama4ForCausalLM",
        "Llama4ForConditionalGeneration",
    ),
    "llava": (
        "LlavaForConditionalGeneration",
        "LlavaNextForConditionalGeneration",
        "LlavaNextVideoForConditionalGeneration",
        "LlavaOnevisionForConditionalGeneration",
        "Mistral3ForConditionalGeneration",
        "LightOnOCRForConditionalGeneration",
        "PaliGemmaForConditionalGeneration",
        "Phi3VForCausalLM",
        "PixtralForConditionalGeneration",
    ),
    "longcat": ("LongcatFlashForCausalLM",),
    "mimo_v2": (
        "MiMoV2FlashForCausalLM",
        "MiMoV2ForCausalLM",
    ),
    "minicpm3": ("MiniCPM3ForCausalLM",),
    "minicpm_v": (
        "MiniCPMV",
        "MiniCPMO",
    ),
    "minimax": (
        "MiniMaxM2ForCausalLM",
        "MiniMaxM3SparseForCausalLM",
        "MiniMaxM3SparseForConditionalGeneration",
    ),
    "minimax_text": (
        "MiniMaxText01ForCausalLM",
        "MiniMaxM1ForCausalLM",
        "MiniMaxForCausalLM",
    ),
    "misc_dense": (
        "ApertusForCausalLM",
        "Cohere2ForCausalLM",
        "CohereForCausalLM",
        "Ernie4_5ForCausalLM",
        "Exaone4ForCausalLM",
        "ExaoneForCausalLM",
        "Glm4ForCausalLM",
        "GraniteForCausalLM",
        "GraniteSWAForCausalLM",
        "HyperCLOVAXForCausalLM",
        "IQuestCoderForCausalLM",
        "InternLM2ForCausalLM",
        "InternLM3ForCausalLM",
        "LLaMAForCausalLM",
        "MiniCPMForCausalLM",
        "Ministral3ForCausalLM",
        "MistralForCausalLM",
        "NemotronForCausalLM",
        "OrionForCausalLM",
        "Phi3ForCausalLM",
        "Plamo3ForCausalLM",
        "SolarForCausalLM",
        "StableLmForCausalLM",
        "StableLMEpochForCausalLM",
        "TeleChat2ForCausalLM",
        "TeleChat3ForCausalLM",
        "TeleFLMForCausalLM",
    ),
    "moe": (
        "Qwen3MoeForCausalLM",
        "Qwen2MoeForCausalLM",
        "MixtralForCausalLM",
        "PhiMoEForCausalLM",
        "OlmoeForCausalLM",
    ),
    "moe_more": (
        "HYV3ForCausalLM",
        "Param2MoEForCausalLM",
        "SarvamMLAForCausalLM",
        "Cohere2MoeForCausalLM",
        "Step3TextForCausalLM",
    ),
    "moe_shared": (
        "Glm4MoeForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "ExaoneMoeForCausalLM",
        "ExaoneMoEForCausalLM",
        "AfmoeForCausalLM",
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "SarvamMoEForCausalLM",
        "GraniteMoeForCausalLM",
        "GraniteMoeSharedForCausalLM",
        "DbrxForCausalLM",
        "Step3p5ForCausalLM",
    ),
    "nemotron": (
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "DeciLMForCausalLM",
    ),
    "olmo_hybrid": ("OlmoHybridForCausalLM",),
    "omni": (
        "Qwen2_5OmniModel",
        "Qwen2_5OmniForConditionalGeneration",
        "Qwen3OmniMoeForConditionalGeneration",
        "Qwen3ASRForConditionalGeneration",
        "Qwen3ASRRealtimeGeneration",
    ),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    ),
    "qwen_vl": (
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "DotsOCRForCausalLM",
    ),
    "retired": (
        "AquilaModel",
        "AquilaForCausalLM",
        "InternLMForCausalLM",
        "XverseForCausalLM",
        "BaiChuanForCausalLM",
        "BaichuanForCausalLM",
        "Dots1ForCausalLM",
        "TeleChatForCausalLM",
    ),
    "transformers_models": (
        "ArceeForCausalLM",
        "CwmForCausalLM",
        "GPTBigCodeForCausalLM",
        "GPTNeoXForCausalLM",
        "GlmForCausalLM",
        "HunYuanDenseV1ForCausalLM",
        "Jais2ForCausalLM",
        "NanbeigeForCausalLM",
        "Olmo2ForCausalLM",
        "Olmo3ForCausalLM",
        "OlmoForCausalLM",
        "PhiForCausalLM",
        "SeedOssForCausalLM",
        "SmolLM3ForCausalLM",
        "Starcoder2ForCausalLM",
        "VaultGemmaForCausalLM",
    ),
    "vision_more": (
        "Ernie4_5_VLMoeForConditionalGeneration",
        "Exaone4_5_ForConditionalGeneration",
        "OpenCUAForConditionalGeneration",
        "Step3VLForConditionalGeneration",
    ),
    "vision_language": (
        "InternVLChatModel",
        "InternVLForConditionalGeneration",
        "InternS1ForConditionalGeneration",
        "Idefics3ForConditionalGeneration",
        "SmolVLMForConditionalGeneration",
        "Cohere2VisionForConditionalGeneration",
        "PaddleOCRVLForConditionalGeneration",
        "SkyworkR1VChatModel",
        "H2OVLChatModel",
    ),
    "zamba2": ("Zamba2ForCausalLM",),
}
"""Architectures that each module's BUILDERS describes."""

MODULE_OF = {
    architecture: module for module, architectures in FAMILIES.items() for architecture in architectures
}


def builder_of(architecture: str) -> Builder | None:
    """The builder of an architecture, or of the decoder behind an embedder, classifier or reward model; None: unknown."""
    if architecture in MODULE_OF:
        return _described(architecture)
    pooled = import_module(f"{PACKAGE}.pooled")
    builder: Builder | None = pooled.builder_of(
        architecture, lambda name: _described(name) if name in MODULE_OF else None
    )
    return builder


def _described(architecture: str) -> Builder:
    module = import_module(f"{PACKAGE}.{MODULE_OF[architecture]}")
    builder: Builder = module.BUILDERS[architecture]
    return builder
