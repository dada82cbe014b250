"""Moondream: SigLIP's layers with fused projections, a decoder like Phi's, and a part that writes points and boxes.

Source of names and shapes: moondream/torch (config.py, text.py, vision.py, moondream.py) of vikhyat/moondream, which stands
beside the checkpoints; a published config says only what differs from config.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense

_TEXT = {"dim": 2048, "ff_dim": 8192, "n_layers": 24, "vocab_size": 51200, "max_context": 2048, "n_heads": 32}
_VISION = {
    "enc_dim": 1152, "enc_patch_size": 14, "enc_n_layers": 27, "enc_ff_dim": 4304, "enc_n_heads": 16, "proj_out_dim": 2048,
    "crop_size": 378, "in_channels": 3, "max_crops": 12, "proj_inner_dim": 8192,
}  # fmt: skip
_REGION = {
    "dim": 2048, "coord_feat_dim": 256, "coord_out_dim": 1024, "size_feat_dim": 512, "size_out_dim": 2048, "inner_dim": 8192,
}  # fmt: skip
_SEEN = vit.Style(attention="attn.", qkv="qkv", out="proj", norms=("ln1", "ln2"), rope=False)


def read(config: Config) -> Model:
    """A Moondream 2 or 0.5B."""
    said = config.optional_child("config") or Config({}, config.path)
    text, seen, region = (_part(said, *each) for each in (("text", _TEXT), ("vision", _VISION), ("region", _REGION)))
    hidden, vocab = text.size("dim"), text.size("vocab_size")
    return parts.decoder(
        Config({**config.raw, "tie_word_embeddings": False, "max_position_embeddings": text.size("max_context")}, config.path),
        hidden=hidden,
        vocab=vocab,
        blocks=(_block(text, hidden),),
        embedding="model.text.wte",
        norm=parts.norms(hidden, "model.text.post_ln", bias=True),
        head="model.text.lm_head.weight",
        tied=False,
        towers=(_vision(seen), _regions(region)),
        head_bias=True,
    )


def _part(said: Config, name: str, defaults: dict[str, int]) -> Config:
    given = said.optional_child(name)
    return Config({**defaults, **(given.raw if given else {})}, f"{said.path}: {name}")


def _block(text: Config, hidden: int) -> Block:
    """One norm before attention and the MLP side by side."""
    heads = text.size("n_heads")
    kind = Attention(heads=heads, kv_heads=text.size("n_kv_heads", default=heads), head_dim=hidden // heads)
    feed = Dense(intermediate=text.size("ff_dim"), gated=False, activation="gelu")
    return Block(
        name="model.text.blocks.{}.",
        indices=tuple(range(text.size("n_layers"))),
        mixers=(kind,),
        feedforward=feed,
        tensors=(
            *parts.fused_attention(kind, hidden, qkv="attn.qkv", out="attn.proj", bias=True),
            *parts.plain_mlp(feed, hidden, "mlp.fc1", "mlp.fc2", bias=True),
            *parts.norms(hidden, "ln", bias=True),
        ),
    )


def _vision(seen: Config) -> Tower:
    """Patches through a linear layer; each crop's states beside those of the whole image pass the projector."""
    width, patch, name = seen.size("enc_dim"), seen.size("enc_patch_size"), "model.vision."
    places, inner = (seen.size("crop_size") // patch) ** 2, seen.size("proj_inner_dim")
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(
            vit.block(
                f"{name}blocks.{{}}.",
                seen.size("enc_n_layers"),
                width,
                seen.size("enc_n_heads"),
                intermediate=seen.size("enc_ff_dim"),
                style=_SEEN,
            ),
        ),
        tensors=(
            *parts.linear(f"{name}patch_emb", width, patch**2 * seen.size("in_channels"), "patch", shard=None, bias=True),
            vit.table(f"{name}pos_emb", 1, places, width),
            *parts.norms(width, f"{name}post_ln", bias=True),
            *parts.linear(f"{name}proj_mlp.fc1", inner, 2 * width, "projector", shard=None, bias=True),
            *parts.linear(f"{name}proj_mlp.fc2", seen.size("proj_out_dim"), inner, "projector", shard=None, bias=True),
        ),
        facts={"patch_size": patch, "image_size": seen.size("crop_size"), "tokens_per_image": places},
    )


def _regions(region: Config) -> Tower:
    """Points and sizes: each is encoded by one layer and read back by two."""
    name, hidden, inner = "model.region.", region.size("dim"), region.size("inner_dim")
    tensors: list[Tensor] = []
    for what, axes in (("coord", 1), ("size", 2)):
        features = region.size(f"{what}_feat_dim")
        tensors += [
            vit.table(f"{name}{what}_features", axes, features // 2),
            *parts.linear(f"{name}{what}_encoder", hidden, features, "projector", shard=None, bias=True),
            *parts.linear(f"{name}{what}_decoder.fc1", inner, hidden, "projector", shard=None, bias=True),
            *parts.linear(f"{name}{what}_decoder.fc2", region.size(f"{what}_out_dim"), inner, "projector", shard=None, bias=True),
        ]
    return Tower(name=name, kind="projector", tensors=tuple(tensors))
