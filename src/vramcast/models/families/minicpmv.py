"""MiniCPM-V and MiniCPM-o (remote code): a SigLIP tower whose patches a resampler turns into queries, before a text decoder.

Source of names and shapes: modeling_minicpmv.py and resampler.py beside the checkpoints on the hub. Versions 1 and 2 name a
tower of timm and do not describe it; MiniCPM-V 2 and Llama3-V 2.5 equal their weight indexes (6,869,931,584, 34,148,369,344 B).
MiniCPM-o also listens: Whisper's encoder and two layers (modeling_minicpmo.py, vllm/model_executor/models/minicpmo.py); what it
speaks with is not counted, and nothing published was held against the rest.
"""

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts, seq2seq, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower

_SPEAKS = "what MiniCPM-o speaks with, about 0.3 B parameters that vLLM does not load,"
_TEXT = {"2.5": "llama", "2.6": "qwen2", "4.0": "llama", "4.5": "qwen3"}
"""The decoder of each published version: the config is flat and does not name it."""


# timm's names for towers, as (width, layers, heads, MLP, patch, positions); source: timm/models/vision_transformer.py.
_NAMED = {"vit_so400m_patch14_siglip_384": (1152, 27, 16, 4304, 14, 729)}
_TIMM = vit.Style(attention="attn.", qkv="qkv", out="proj", norms=("norm1", "norm2"), rope=False)


def read(config: Config) -> Model:
    """A MiniCPM-V model."""
    if not config.has("version") and config.has("vision_encoder"):
        text = Config({**config.raw, "model_type": "minicpm"}, config.path)
        return wrapper.wrap(config, text, prefix="llm.model.", towers=(_named(config, text.size("hidden_size")),), tied=False)
    version = _version(config)
    if version not in _TEXT:
        raise UnmodelledError(f"{config.path}: MiniCPM-V version {version} has no rule; known are {', '.join(_TEXT)}")
    text = Config({**config.raw, "model_type": _TEXT[version]}, config.path)
    hidden = text.size("hidden_size")
    towers = (_vision(config, hidden),)
    if config.text("model_type") != "minicpmo":
        return wrapper.wrap(config, text, prefix="llm.model.", towers=towers, tied=False)
    hears = config.flag("init_audio", default=True)
    whole = wrapper.wrap(
        config, text, prefix="llm.model.", towers=(*towers, *(_hearing(config, hidden) if hears else ())), tied=False
    )
    return wrapper.without_tower(whole, _SPEAKS) if config.flag("init_tts", default=True) else whole


def _hearing(config: Config, hidden: int) -> tuple[Tower, Tower]:
    """Whisper's encoder; a quarter of its MLP's width is what two layers project."""
    heard = wrapper.part(config, "audio_config", "whisper")
    tower = seq2seq.speech_encoder(heard, "apm.")
    name, wide = "audio_projection_layer.", heard.size("encoder_ffn_dim") // 4
    tensors = (
        *parts.linear(f"{name}linear1", hidden, wide, "projector", shard=None, bias=True),
        *parts.linear(f"{name}linear2", hidden, hidden, "projector", shard=None, bias=True),
    )
    return tower, Tower(name=name, kind="projector", tensors=tensors)


def _version(config: Config) -> str:
    """The version as a number; 2.5 was written as text."""
    said = config.raw.get("version")
    if isinstance(said, str) and said.replace(".", "", 1).isdecimal():
        config = Config({"version": float(said)}, config.path)
    return f"{config.number('version'):.1f}"


def _named(config: Config, hidden: int) -> Tower:
    """The tower that versions 1 and 2 name, without its last layer, and a resampler that keeps a table of positions."""
    named, name, queries = config.text("vision_encoder").partition(".")[0], "vpm.", config.size("query_num", default=64)
    if named not in _NAMED:
        raise UnmodelledError(f"{config.path}: vision_encoder {named[:60]!r} has no rule; known is {', '.join(_NAMED)}")
    width, layers, heads, inner, patch, places = _NAMED[named]
    layers -= config.flag("drop_vision_last_layer", default=True)
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(vit.block(f"{name}blocks.{{}}.", layers, width, heads, intermediate=inner, style=_TIMM),),
        tensors=(
            *vit.patches(f"{name}patch_embed.proj", width, 3, patch, patch, bias=True),
            vit.table(f"{name}pos_embed", 1, places, width),
            *parts.norms(width, f"{name}norm", bias=True),
            *resampler("resampler.", queries, hidden, width),
            vit.table("resampler.pos_embed", queries, hidden),
        ),
        facts={"patch_size": patch, "tokens_per_image": queries},
    )


def _vision(config: Config, hidden: int) -> Tower:
    seen, name = wrapper.part(config, "vision_config", "siglip_vision_model"), "vpm."
    width, patch, image = seen.size("hidden_size"), wrapper.side(seen, "patch_size"), wrapper.side(seen, "image_size")
    layers = seen.size("num_hidden_layers") - config.flag("drop_vision_last_layer", default=True)
    heads, inner = seen.size("num_attention_heads"), seen.size("intermediate_size")
    queries = config.size("query_num", default=64)
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(vit.block(f"{name}encoder.layers.{{}}.", layers, width, heads, intermediate=inner, style=vit.Style()),),
        tensors=(
            *vit.patches(f"{name}embeddings.patch_embedding", width, 3, patch, patch, bias=True),
            vit.table(f"{name}embeddings.position_embedding.weight", (image // patch) ** 2, width),
            *parts.norms(width, f"{name}post_layernorm", bias=True),
            *resampler("resampler.", queries, hidden, width),
        ),
        facts={"patch_size": patch, "tokens_per_image": queries},
    )


def resampler(name: str, queries: int, hidden: int, width: int) -> tuple[Tensor, ...]:
    """Learned queries that attend to the patches, once, and are projected."""
    return (
        vit.table(f"{name}query", queries, hidden),
        *parts.linear(f"{name}kv_proj", hidden, width, "projector", shard=None),
        Tensor(name=f"{name}attn.in_proj_weight", shape=(3 * hidden, hidden), role="qkv"),
        Tensor(name=f"{name}attn.in_proj_bias", shape=(3 * hidden,), role="bias"),
        *parts.linear(f"{name}attn.out_proj", hidden, hidden, "o", shard=None, bias=True),
        *parts.norms(hidden, f"{name}ln_q", f"{name}ln_kv", f"{name}ln_post", bias=True),
        Tensor(name=f"{name}proj", shape=(hidden, hidden), role="projector"),
    )
