"""An encoder and a decoder of classes of their own, joined: TrOCR, Donut, captions by ViT and GPT-2, speech translation.

Source: transformers 5.23, modeling_vision_encoder_decoder.py and its two kin; the decoder attends to the encoder by a third part
of each layer, behind one projection where their widths differ (GPT2Attention and BertLayer with ``add_cross_attention``).
"""

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts, read_config
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention

_BODIES = {
    "vit": "ViTModel", "deit": "DeiTModel", "beit": "BeitModel", "swin": "SwinModel", "donut-swin": "DonutSwinModel",
    "dinov2": "Dinov2Model", "bert": "BertModel", "roberta": "RobertaModel", "xlm-roberta": "XLMRobertaModel",
    "camembert": "CamembertModel", "electra": "ElectraModel", "wav2vec2": "Wav2Vec2Model", "hubert": "HubertModel",
    "wavlm": "WavLMModel", "distilbert": "DistilBertModel",
}  # fmt: skip
"""The class of an encoder of each type, as AutoModel builds it."""

_WRITERS = {
    "gpt2": "GPT2LMHeadModel", "bert": "BertLMHeadModel", "roberta": "RobertaForCausalLM", "xlm-roberta": "XLMRobertaForCausalLM",
    "camembert": "CamembertForCausalLM", "trocr": "TrOCRForCausalLM", "mbart": "MBartForCausalLM", "bart": "BartForCausalLM",
}  # fmt: skip
"""The class of a decoder of each type, as AutoModelForCausalLM builds it."""

_ATTEND_BY_THEMSELVES = {"trocr", "mbart", "bart"}
_KINDS = {"vision-encoder-decoder": "vision", "speech-encoder-decoder": "audio"}


def read(config: Config) -> Model:
    """Both models as one: the decoder's layers are its own, the encoder is a tower."""
    seen, said = config.child("encoder"), config.child("decoder")
    seen = _widened(seen)
    encoder, decoder = _alone(seen, "encoder", _BODIES), _alone(said, "decoder", _WRITERS)
    widths = encoder.hidden, decoder.hidden
    between: tuple[Tensor, ...] = ()
    if widths[0] != widths[1] and not said.has("cross_attention_hidden_size"):
        between = parts.linear("enc_to_dec_proj", widths[1], widths[0], "projector", shard=None, bias=True)
    tower = Tower(
        name="encoder.",
        kind=_KINDS.get(config.text("model_type"), "encoder"),
        hidden=widths[0],
        blocks=tuple(_under("encoder.", block) for block in (*encoder.blocks, *(b for t in encoder.towers for b in t.blocks))),
        tensors=(
            *_named("encoder.", encoder.tensors),
            *(each for stage in encoder.towers for each in _named("encoder.", stage.tensors)),
            *between,
        ),
    )
    blocks = tuple(_under("decoder.", _crossed(block, said)) for block in decoder.blocks)
    own = {n: v for n, v in parts.said_of_itself(config).items() if n != "positions"}
    own |= {} if config.has("torch_dtype") or config.has("dtype") else {"dtype": decoder.dtype}
    tensors = _named("decoder.", decoder.tensors)
    return msgspec.structs.replace(decoder, blocks=blocks, tensors=tensors, towers=(tower,), **own)


def _alone(config: Config, part: str, known: dict[str, str]) -> Model:
    """One of both as a model. Raises UnmodelledError for a type that was never joined here."""
    kind = config.text("model_type")
    if kind not in known:
        raise UnmodelledError(f"{config.path}: {part} of model_type {kind[:40]!r} has no rule; known are {', '.join(known)}")
    return read_config({**config.raw, "architectures": [known[kind]]}, path=config.path)


def _widened(config: Config) -> Config:
    """Swin's width doubles at each stage but the first, whatever its config says."""
    if not config.has("depths") or not config.has("embed_dim"):
        return config
    width = config.size("embed_dim") * 2 ** min(max(len(config.list("depths")) - 1, 0), 16)
    return Config({**config.raw, "hidden_size": width}, config.path)


def _crossed(block: Block, said: Config) -> Block:
    """The layer with attention to the encoder."""
    kind = said.text("model_type")
    mixer = block.mixers[0] if block.mixers else None
    if kind in _ATTEND_BY_THEMSELVES or not isinstance(mixer, Attention):
        return block
    hidden = mixer.heads * mixer.head_dim
    across = Attention(heads=mixer.heads, kv_heads=mixer.heads, head_dim=mixer.head_dim, causal=False)
    tensors = _gpt2(hidden) if kind == "gpt2" else _bert(hidden)
    return msgspec.structs.replace(block, cross=across, tensors=(*block.tensors, *tensors))


def _gpt2(hidden: int) -> tuple[Tensor, ...]:
    """GPT-2's Conv1D keeps weights as (input, output)."""
    rows = (("c_attn", 2 * hidden, "k", 1), ("q_attn", hidden, "q", 1), ("c_proj", hidden, "o", 0))
    weights = (
        each
        for name, outputs, role, shard in rows
        for each in (
            Tensor(name=f"crossattention.{name}.weight", shape=(hidden, outputs), role=role, shard=shard),
            Tensor(name=f"crossattention.{name}.bias", shape=(outputs,), role="bias", shard=0 if shard else None),
        )
    )
    return (*weights, *parts.norms(hidden, "ln_cross_attn", bias=True))


def _bert(hidden: int) -> tuple[Tensor, ...]:
    three = (
        each
        for name, role in (("query", "q"), ("key", "k"), ("value", "v"))
        for each in parts.linear(f"crossattention.self.{name}", hidden, hidden, role, shard=0, bias=True)
    )
    out = parts.linear("crossattention.output.dense", hidden, hidden, "o", shard=1, bias=True)
    return (*three, *out, *parts.norms(hidden, "crossattention.output.LayerNorm", bias=True))


def _under(prefix: str, block: Block) -> Block:
    return msgspec.structs.replace(block, name=f"{prefix}{block.name}")


def _named(prefix: str, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(msgspec.structs.replace(t, name=f"{prefix}{t.name}") for t in tensors)
