"""Hold every ``model_type`` against transformers: its default config and perturbed ones, built on meta tensors, counted by both.

Run with the [torch] extra: ``python tools/sweep_types.py [--seeds N] [TYPE ...]``. A perturbed config has other depths, widths,
head counts, expert counts, vocabularies and biases, tied or untied, in every nested config too. One line for each difference.
"""

import argparse
import json
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from vramcast.errors import VramcastError
from vramcast.models.families import model_types, read_config

# The class that a published config of the type most likely names, in the order transformers' own tables are asked.
TABLES = (
    "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "AUDIO_TEXT_TO_TEXT",
    "MASKED_LM",
)  # fmt: skip
QWEN4: dict[str, Any] = {
    "indexer_n_heads": 8, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048, "indexer_compress_ratio": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}, "ple_layer_ids": [2, 6],
    "eos_token_id": 1, "ngram_vocab_size_base": 20_000,
}  # fmt: skip
# What a published config says and the default leaves out.
SAID: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "hunyuan_vl": {"text_config": {"head_dim": 128, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}},
    "qwen4_exp": {"text_config": QWEN4},
    "qwen4_exp_text": QWEN4,
    "granite4_vision": {"deepstack_layer_map": [[3, 0], [6, 3]], "downsample_rate": "4/8"},
    "chameleon": {"vocabulary_map": {"<image>": 4}},
    "emu3": {"vocabulary_map": {"<image>": 4}},
    "esm": {"vocab_size": 33},
    "reformer": {"is_decoder": True},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "gemma4_assistant": {
        "text_config": {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
    },
}
# transformers allocates weights for LongCat's experts that do nothing, which no checkpoint has; the default of Qwen3-Omni's
# thinker has 28 heads for a hidden size of 2,048 and no head_dim, which is refused.
OTHER = {"longcat_flash", "qwen3_omni_moe_thinker"}
# Lists over the layers, which a new depth makes wrong and the class makes anew.
PATTERNS = ("layer_types", "mlp_layer_types", "block_types", "layers_block_type")
SWITCHES = {
    "attention_bias", "mlp_bias", "tie_word_embeddings", "use_bias", "qkv_bias", "use_qk_norm", "projector_bias",
    "multimodal_projector_bias", "attention_out_bias", "use_qkv_bias", "lm_head_bias", "norm_bias", "vision_use_head",
    "use_conv_bias", "conv_bias",
}  # fmt: skip
Change = Callable[[int], int]


def _plus(step: int) -> Change:
    return lambda value: value + step


def _half(value: int) -> int:
    return value // 2 if value > 2 and value % 2 == 0 else value


def _few(value: int) -> int:
    return 3 if value > 3 else value + 1


CHANGES: dict[str, Change] = {
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "depth"), _few
    ),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"), _plus(64)),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), _plus(2)),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), _plus(1)),
    **dict.fromkeys(("hidden_size", "head_dim", "max_position_embeddings", "image_size"), lambda value: value * 2),
    "moe_intermediate_size": _plus(32),
    "vocab_size": _plus(128),
    "num_key_value_heads": _half,
}
_RARELY = {"hidden_size", "head_dim"}


def class_of(model_type: str) -> Any:
    """The class of transformers that a checkpoint of that type is loaded by; None when there is none."""
    import transformers
    from transformers.models.auto import modeling_auto

    for table in TABLES:
        names = getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES", {}).get(model_type)
        if names:
            return getattr(transformers, names if isinstance(names, str) else names[0], None)
    return None


def default_of(model_type: str) -> dict[str, Any]:
    """Every field of the class's default config. Raises whatever the class does when it refuses its own."""
    import transformers

    config = transformers.CONFIG_MAPPING[model_type](**SAID.get(model_type, {}))
    written = json.loads(config.to_json_string(use_diff=False))
    return {name: value for name, value in written.items() if name != "architectures"}


def perturbed(raw: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The config with about a third of what can be changed changed, nested configs included."""
    out = {name: _other(name, value, chance) for name, value in raw.items()}
    if out.get("num_hidden_layers") != raw.get("num_hidden_layers"):
        out = {name: value for name, value in out.items() if name not in PATTERNS}
    return out


def _other(name: str, value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict) and "config" in name:
        return perturbed(value, chance)
    if chance.random() > (0.15 if name in _RARELY else 0.35):
        return value
    if isinstance(value, bool):
        return not value if name in SWITCHES else value
    return CHANGES[name](value) if name in CHANGES and isinstance(value, int) and value > 0 else value


def counted(model_type: str, raw: dict[str, Any]) -> tuple[int, dict[str, dict[str, Any]]] | None:
    """Parameters that transformers builds, and the configs it would be published with; None when it refuses to build."""
    import torch
    import transformers

    try:
        config = transformers.CONFIG_MAPPING[model_type].from_dict(json.loads(json.dumps(raw)))
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            built = class_of(model_type)(config)
    except Exception:  # a class refuses a config in any way it likes
        return None
    saved = {how: json.loads(built.config.to_json_string(use_diff=how == "differences")) for how in ("whole", "differences")}
    named = {"model_type": model_type, "architectures": [type(built).__name__]}
    return sum(p.numel() for p in built.parameters()), {how: {**each, **named} for how, each in {"given": raw, **saved}.items()}


def differences(model_type: str, seeds: range) -> Iterator[tuple[str, int | str, int]]:
    """(which config, our count or refusal, theirs) where both differ; an empty string and two equal counts where they do not."""
    base = default_of(model_type)
    for seed in seeds:
        raw = perturbed(base, random.Random(f"{model_type} {seed}")) if seed else base
        found = counted(model_type, raw)
        for how, config in found[1].items() if found else ():
            try:
                ours: int | str = read_config(config).parameters
            except VramcastError as error:
                ours = str(error)
            yield ("" if ours == found[0] else f"seed {seed}, {how}", ours, found[0])


def row(model_type: str) -> str:
    """The fields of the class's default config that decide shapes, and the parameters transformers builds of it."""
    from build_class_defaults import relevant

    def kept(raw: dict[str, Any]) -> dict[str, Any]:
        return {
            name: kept(value) if isinstance(value, dict) else value
            for name, value in raw.items()
            if name == "model_type"
            or (value is not None and relevant(name) and (not isinstance(value, dict) or "config" in name or name.isdigit()))
        }

    raw = default_of(model_type)
    found = counted(model_type, raw)
    parameters = found[0] if found else None
    return json.dumps({"id": model_type, "parameters": parameters, "config": {**kept(raw), "model_type": model_type}})


def main() -> None:
    """Sweep the types that are named, or all."""
    import transformers

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="configs of each type: the default and others perturbed")
    parser.add_argument("--rows", action="store_true", help="print each type's default config and count, for a test, instead")
    parser.add_argument("types", nargs="*")
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if asked.rows:
        print(*map(row, asked.types), sep="\n")
        return
    tally: Counter[str] = Counter()
    for model_type in asked.types or sorted({*model_types()} & {*transformers.CONFIG_MAPPING} - OTHER):
        if class_of(model_type) is None:
            continue
        for where, ours, theirs in differences(model_type, range(asked.seeds)):
            tally["differ" if where else "equal"] += 1
            if where:
                print(f"{model_type}, {where}: {ours} against {theirs}", flush=True)
    print(dict(tally))


if __name__ == "__main__":
    main()
