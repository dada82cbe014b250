"""Write src/vramcast/models/families/class_defaults.json: what each transformers config class assumes when a field is absent.

Run with the [torch] extra after adding a ``model_type`` to the registry: ``python tools/build_class_defaults.py``.
Only fields that change shapes or attention spans are kept; ``aliases`` are the other spellings a class accepts.
"""

import dataclasses
import json
from pathlib import Path

from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

from vramcast.models.families import model_types

TARGET = Path(__file__).parents[1] / "src/vramcast/models/families/class_defaults.json"
PLAIN = (bool, int, str, list, tuple)
IRRELEVANT = (
    "dropout",
    "_drop",
    "token",
    "initializer",
    "init_std",
    "_eps",
    "theta",
    "_factor",
    "scal",
    "use_cache",
    "output_attentions",
    "output_hidden",
    "output_router",
    "return_dict",
    "problem_type",
    "summary",
    "coef",
    "softcap",
    "is_encoder_decoder",
    "is_decoder",
    "chunk_size_feed",
    "_name_or_path",
    "architectures",
    "model_type",
    "dtype",
    "pretraining_tp",
    "norm_topk",
    "jitter",
    "labels",
    "label",
    "topk_method",
    "scoring_func",
    "base_model",
    "transformers_version",
    "routed_",
    "ep_size",
    "clip",
    "time_step",
)
TOWERS = ("clip_vision_model", "siglip_vision_model", "siglip2_vision_model", "pixtral")
KEPT = ("num_experts_per_tok", "experts_per_token", "n_routed_experts", "num_routed_experts", "attention_chunk_size")


def relevant(name: str) -> bool:
    return name in KEPT or not any(part in name for part in IRRELEVANT)


def row(cls: type) -> dict[str, object]:
    fields = {f.name: f.default for f in dataclasses.fields(cls)}
    kept = {name: value for name, value in fields.items() if isinstance(value, PLAIN) and relevant(name)}
    aliases = dict(sorted(cls.attribute_map.items()))
    return {"defaults": dict(sorted(kept.items())), "aliases": aliases, "architecture": language_model(cls)}


def language_model(cls: type) -> str:
    """The class's own language model; a class that borrows another's (InternLM3 is a Llama) has none."""
    name = CAUSAL.get(cls.model_type, "")
    own = isinstance(name, str) and name.startswith(cls.__name__.removesuffix("Config").removesuffix("Text") + "For")
    return name if own else ""


def nested(cls: type) -> dict[str, type]:
    """The config classes inside this one (text, vision, audio), by the model_type of each."""
    found = {}
    for name, declared in cls.sub_configs.items():
        usual = getattr(cls.sub_configs_defaults.get(name), "model_type", "")
        inner = declared if dataclasses.is_dataclass(declared) else CONFIG_MAPPING.get(usual)
        if inner is not None:
            found |= {inner.model_type: inner, **nested(inner)}
    return found


def main() -> None:
    known = {name: CONFIG_MAPPING[name] for name in (*model_types(), *TOWERS) if name in CONFIG_MAPPING}
    for cls in [*known.values()]:
        known = {**nested(cls), **known}
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row(cls))}" for name, cls in sorted(known.items()))
    TARGET.write_text(f"{{\n{rows}\n}}\n")
    print(f"{len(known)} classes")


if __name__ == "__main__":
    main()
