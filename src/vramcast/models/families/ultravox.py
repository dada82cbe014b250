"""Ultravox: Whisper's encoder and a gated projector before a decoder that stands in a checkpoint of its own.

Source of names and shapes: ultravox_model.py and ultravox_config.py beside the checkpoints (fixie-ai). Encoder and projector of
v0.6 for Llama 3.1 8B are what its file of 1,374,682,344 bytes holds, header included; the decoder is that of ``text_model_id``.
"""

from collections.abc import Callable

import msgspec

from vramcast.errors import NamedElsewhereError
from vramcast.models.config import Config
from vramcast.models.families import parts, seq2seq, wrapper
from vramcast.models.inventory import Model, Tower

_STACKED = 8


def read(config: Config) -> Model:
    """An Ultravox model. Raises NamedElsewhereError where its decoder or encoder is only named."""
    said = config.optional_child("text_config")
    if said and not config.has("text_model_id"):
        text = wrapper.text_of(config, "llama", "text_config")
        model = wrapper.wrap(config, text, prefix="language_model.model.", towers=(), tied=False)
        return _listening(config, model, _no_checkpoint)
    named = config.text("text_model_id")
    raise NamedElsewhereError(
        f"{config.path}: its decoder is {named[:80]}, a checkpoint of its own that is not read here: "
        "give the id or the folder of the whole model, or write that model's config under text_config",
        build=lambda known: _listening(config, known(named), known),
    )


def _no_checkpoint(name: str) -> Model:
    raise NamedElsewhereError(f"its encoder is {name[:80]}, a checkpoint of its own that is not read here", build=_no_checkpoint)


def _listening(config: Config, text: Model, known: Callable[[str], Model]) -> Model:
    tower = _encoder(config, known)
    return msgspec.structs.replace(
        text,
        id="",
        family="ultravox",
        architecture=config.architecture,
        wraps=text.text_class,
        towers=(*text.towers, tower, _projector(config, tower.hidden, text.hidden)),
    )


def _encoder(config: Config, known: Callable[[str], Model]) -> Tower:
    """Whisper's encoder, of the config beside it or of the model that is named."""
    if not config.has("audio_model_id"):
        return seq2seq.speech_encoder(wrapper.part(config, "audio_config", "whisper"), "audio_tower.")
    return msgspec.structs.replace(known(config.text("audio_model_id")).towers[0], name="audio_tower.")


def _projector(config: Config, heard: int, hidden: int) -> Tower:
    """Several states side by side; half of what the first layer gives gates the other half."""
    name, stacked = "multi_modal_projector.", heard * config.size("stack_factor", default=_STACKED)
    inner = config.size("hidden_size", default=4096)
    halved = inner // 2 if config.text("projector_act", default="swiglu") == "swiglu" else inner
    middle = config.flag("projector_ln_mid", default=False)
    tensors = (
        *parts.norms(stacked, f"{name}ln_pre"),
        *parts.linear(f"{name}linear_1", inner, stacked, "projector", shard=None),
        *parts.linear(f"{name}linear_2", hidden, halved, "projector", shard=None),
        *parts.norms(halved if middle else hidden, f"{name}ln_mid" if middle else f"{name}ln_post"),
    )
    return Tower(name=name, kind="projector", tensors=tensors)
