"""Models made of a text decoder and towers: where the decoder's config hides, what the whole says about it, parts' defaults.

A nested config is written as a difference from its class's defaults; the outer one decides whether the head is tied, and
carries the dtype and the quantisation of the whole.
"""

from typing import Any

import msgspec

from vramcast.errors import ConfigError
from vramcast.models.classes import model_class
from vramcast.models.config import Config
from vramcast.models.families import parts, read_text
from vramcast.models.families.class_defaults import completed, fields_of
from vramcast.models.inventory import Model, Tensor, Tower

_TEXT = ("text_config", "llm_config", "language_config")

# Classes whose head is tied when either config says so: it was saved in the text's before transformers 5.
_EITHER_TIES = {
    "fast_vlm", "glm4v", "glm4v_moe", "glm_ocr", "hunyuan_vl", "llava", "llava_next_video", "llava_onevision",
    "minimax_m3_vl", "paddleocr_vl", "perception_lm", "qwen2_5_vl", "qwen2_vl", "shieldgemma2", "video_llama_3",
}  # fmt: skip

# What such a class always does, whatever its config says.
_ALWAYS = {"glm4v_text": {"attention_bias": True}}


def text_of(config: Config, kind: str, *names: str) -> Config:
    """The decoder's config: nested, or the outer one itself when it is flat; ``kind`` is its class when it does not say.

    A class read as another family's decoder keeps its own defaults: what it has no field for is absent, not the other's default.
    """
    found = config.optional_child(*(names or _TEXT))
    own = found.text("model_type", default=kind) if found else kind
    if found and own == config.text("model_type", default=""):
        own = kind
    return as_decoder(found or config, own, nested=True)


def as_decoder(config: Config, own: str, *, nested: bool) -> Config:
    """The config of a text decoder of class ``own`` under the name of the family that reads it, with its own class's defaults."""
    whole, alike = completed(config, own, nested=nested), model_class(own).name
    foreign = dict.fromkeys(fields_of(alike) if fields_of(own) else ())
    return Config({**foreign, **whole.raw, **_ALWAYS.get(own, {}), "model_type": alike}, whole.path)


def part(config: Config, name: str, kind: str) -> Config:
    """A nested tower's config with the defaults of class ``kind``, all of them when the config leaves it out."""
    return completed(config.optional_child(name) or Config({}, f"{config.path}: {name}"), kind, nested=True)


def wrap(
    config: Config,
    text: Config,
    *,
    prefix: str,
    towers: tuple[Tower, ...],
    tied: bool = True,
    extra: tuple[Tensor, ...] = (),
) -> Model:
    """The decoder of ``text`` with its towers, under the outer config's name. ``tied`` is the outer class's default."""
    said = config.flag("tie_word_embeddings", default=tied) or _text_ties(config, text)
    inner = read_text(Config({**text.raw, "tie_word_embeddings": said}, text.path), prefix=prefix)
    own: dict[str, Any] = {"dtype": dtype_of(config, text), "quantization": parts.quantization_of(config) or inner.quantization}
    return msgspec.structs.replace(
        inner,
        family=config.text("model_type", default=inner.family),
        wraps=inner.text_class,
        architecture=config.architecture or inner.architecture,
        tensors=(*inner.tensors, *extra),
        towers=(*inner.towers, *towers),
        **own,
    )


def tied_as(config: Config, tied: bool) -> Config:
    """The config of a class that ties its head, or does not, whatever the outer config says."""
    return Config({**config.raw, "tie_word_embeddings": tied}, config.path)


def _text_ties(config: Config, text: Config) -> bool:
    return config.text("model_type", default="") in _EITHER_TIES and text.flag("tie_word_embeddings", default=False)


def with_towers(model: Model, *towers: Tower) -> Model:
    """The model with more towers."""
    return msgspec.structs.replace(model, towers=(*model.towers, *towers)) if towers else model


def without_tower(model: Model, what: str) -> Model:
    """The decoder alone, saying that its config does not describe a part the model has."""
    return msgspec.structs.replace(model, unmodelled=(*model.unmodelled, f"{what}: the config does not describe it"))


def dtype_of(config: Config, text: Config) -> str:
    """The outer dtype, else the decoder's."""
    return parts.dtype_of(config if config.has("dtype") or config.has("torch_dtype") else text)


def side(config: Config, *names: str, default: Any = None) -> int:
    """The side of a square given as a number or as [height, width]. Raises ConfigError when it is not square."""
    name = next((n for n in names if config.has(n)), names[0])
    given = config.raw.get(name)
    if isinstance(given, list | tuple):
        if len(given) != 2 or given[0] != given[1]:
            raise ConfigError(f"{config.path}: {name} is {given!r:.60}, expected a square")
        return Config({name: given[0]}, config.path).size(name)
    return config.size(*names) if default is None else config.size(*names, default=default)
