"""from_pretrained without weights: the config is real, the weights are random and take no memory."""

from typing import Any

import torch

from vramcast.tracing.execution.models import from_config
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins import four_bit
from vramcast.tracing.execution.stand_ins.imported import when_imported


def install(session: Session) -> None:
    """Make ``from_pretrained`` build the model from its config, where it would have left the weights."""
    when_imported("transformers.modeling_utils", lambda module: _transformers(module, session))
    when_imported("diffusers.models.modeling_utils", lambda module: _diffusers(module, session))


def _transformers(modeling_utils: Any, session: Session) -> None:
    """The language models of transformers, on the device that the script names."""

    def from_pretrained(cls: Any, name: Any, /, *_: Any, config: Any = None, **options: Any) -> Any:
        import transformers

        if config is None or isinstance(config, str):
            known = {k: options[k] for k in _OF_THE_CONFIG if k in options}
            config = _own_part(cls, transformers.AutoConfig.from_pretrained(config or name, **known))
        if options.get("attn_implementation"):
            config._attn_implementation = options["attn_implementation"]
        dtype = _dtype(options.get("dtype", options.get("torch_dtype", _usual(transformers.__version__))), config)
        scheme = _four_bit(_asked_bits(options) or getattr(config, "quantization_config", None), dtype)
        card = session.backend.device_type
        with torch.device("meta" if scheme else _place(options.get("device_map"), card)):
            model = from_config(cls, config, dtype)
        if scheme:
            four_bit.quantize_linears(model, scheme=scheme, device=card)
            if modeling_utils.is_fsdp_enabled():
                four_bit.onto_host(model)
        model.name_or_path = str(name)
        return model.eval()

    modeling_utils.PreTrainedModel.from_pretrained = classmethod(from_pretrained)


def _own_part(cls: Any, config: Any) -> Any:
    """The part of a config that a tower asked for by its own class is built of, as that class's own config reads it."""
    own = getattr(cls, "config_class", None)
    part = getattr(config, getattr(own, "base_config_key", "") or "", None)
    return part if own is not None and not isinstance(config, own) and isinstance(part, own) else config


_OF_THE_CONFIG = ("revision", "token", "cache_dir", "local_files_only", "subfolder", "trust_remote_code")


def _diffusers(module: Any, session: Session) -> None:
    """The same for the models of diffusers: towers, denoisers and autoencoders, built on the host from their configs."""

    def from_pretrained(cls: Any, name: Any, /, **options: Any) -> Any:
        known = {k: options[k] for k in _OF_THE_CONFIG if k in options and k != "trust_remote_code"}
        config = cls.load_config(name, **known)
        place = _place(options.get("device_map"), session.backend.device_type)
        with torch.device(place):
            model = cls.from_config(config)
        return model.to(options.get("torch_dtype") or torch.float32).eval()

    module.ModelMixin.from_pretrained = classmethod(from_pretrained)


def _usual(version: str) -> Any:
    """What ``from_pretrained`` takes where no type is named: the checkpoint's since transformers 5, float32 before.

    Source: transformers 5.0 migration guide; modeling_utils.py of 4.57, ``dtype`` of None is torch.get_default_dtype().
    """
    return "auto" if int(version.partition(".")[0]) >= 5 else torch.get_default_dtype()


def _place(device_map: Any, card: str) -> str:
    """On the host unless a map or a device of the surrounding code says otherwise; a map always has a place on the card."""
    if device_map is None:
        return str(torch.tensor(()).device)
    named = set(map(str, device_map.values())) if isinstance(device_map, dict) else {str(device_map)}
    return "cpu" if named == {"cpu"} else card


def _asked_bits(options: dict[str, Any]) -> Any:
    """The quantisation that a script asks for, also as arguments of their own (transformers before 5)."""
    bits = {name: True for name in ("load_in_4bit", "load_in_8bit") if options.get(name)}
    return options.get("quantization_config") or (bits | {"quant_method": "bitsandbytes"} if bits else None)


def _four_bit(quantization: Any, dtype: torch.dtype) -> four_bit.Scheme | None:
    """The scheme of a bitsandbytes 4-bit config; None without one. Other schemes are refused by name."""
    if quantization is None:
        return None
    values = quantization if isinstance(quantization, dict) else quantization.to_dict()
    if not values.get("load_in_4bit"):
        scheme = "bitsandbytes 8-bit" if values.get("load_in_8bit") else values.get("quant_method")
        raise NotImplementedError(f"weights quantised with {scheme} are not traced, only bitsandbytes 4-bit")
    return four_bit.Scheme(
        kind=str(values.get("bnb_4bit_quant_type", "fp4")),
        compute=_named(values.get("bnb_4bit_compute_dtype")) or dtype,
        storage=_named(values.get("bnb_4bit_quant_storage")) or torch.uint8,
        double=bool(values.get("bnb_4bit_use_double_quant", False)),
    )


def _named(dtype: Any) -> torch.dtype | None:
    found = getattr(torch, str(dtype).removeprefix("torch."), None)
    return found if isinstance(found, torch.dtype) else None


def _dtype(wanted: Any, config: Any) -> torch.dtype:
    """The type a checkpoint would be loaded in: as asked, else as the config says, else fp32."""
    if isinstance(wanted, torch.dtype):
        return wanted
    configured = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    return _named(configured if wanted in {"auto", None} else wanted) or torch.float32
