"""What prepares pictures and sound for a published model: the class of its family with that class's own settings."""

import json
from typing import Any

from vramcast.tracing.published.families import facts


def preprocessor_file(config: dict[str, Any]) -> dict[str, str]:
    """``preprocessor_config.json`` by its name, with the sizes that the model's config fixes; nothing for models of text."""
    kind = config.get("model_type", "")
    pictures, sound = facts("pictures").get(kind), facts("sound").get(kind)
    told: dict[str, Any] = {}
    if pictures:
        told = {"image_processor_type": pictures, **_size(pictures, config)}
    elif sound:
        told = {"feature_extractor_type": sound["type"]}
        if "feature_size" in sound:
            told["feature_size"] = config.get(sound["feature_size"], 80)
        if "normalized" in sound:
            told["return_attention_mask"] = config.get(sound["normalized"]) == "layer"
    if told and kind in facts("processors"):
        told["processor_class"] = facts("processors")[kind]
    return {"preprocessor_config.json": json.dumps(told)} if told else {}


def _size(prepared_by: str, config: dict[str, Any]) -> dict[str, Any]:
    """The side of a square picture where the model takes no other."""
    side, cut = config.get("image_size") or config.get("vision_config", {}).get("image_size"), facts("cut").get(prepared_by)
    if not isinstance(side, int) or cut == "own":
        return {}
    square = {"height": side, "width": side}
    return {"size": {"shortest_edge": side}, "crop_size": square} if cut else {"size": square}
