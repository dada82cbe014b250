"""A transformers model from its config alone, with random weights that take no memory."""

from typing import Any

import torch

from vramcast.errors import QuestionError, UnmodelledError, unknown_name
from vramcast.tracing.execution import checkpointing
from vramcast.tracing.execution.adapters import add_adapter
from vramcast.tracing.execution.ranks import data_parallel
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins import four_bit
from vramcast.tracing.request import TraceRequest

_LANGUAGE_MODELS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "ForMaskedLM")
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype of that name."""
    if name not in DTYPES:
        raise unknown_name("dtype to trace", name, DTYPES)
    return DTYPES[name]


def import_classes(request: TraceRequest) -> None:
    """Load the code of the request's model, so that its import is over before anything is recorded."""
    import transformers

    _class_of(_config(request), transformers)


def hidden_size(request: TraceRequest) -> int:
    """Features of the request's hidden states."""
    return int(_config(request).get_text_config().hidden_size)


def class_and_config(request: TraceRequest) -> tuple[Any, Any]:
    """The class of the request's model, and its config."""
    import transformers

    config = _config(request)
    return _class_of(config, transformers), config


def build(request: TraceRequest, session: Session, *, whole: bool = True) -> torch.nn.Module:
    """The model of a request: built, quantised, with its adapter and checkpointing, in training mode.

    It stands on the traced device; on meta where the device never holds it ``whole``.
    """
    loaded = whole and not request.quant
    model = _instantiate(request, session.backend.device_type if loaded else "meta")
    if loaded:
        session.start_loaded(model)
    if request.quant:
        _quantize(model, request, session)
    if request.adapter is not None:
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        model = add_adapter(model, request.adapter, kbit=bool(request.quant))
    if request.trained_layers is not None:
        _train_some(model, request.trained_layers, ends=request.trains_ends)
    checkpointing.enable(model, request.checkpointing)
    return model.train(request.task == "train")


def _train_some(model: Any, layers: tuple[int, ...], *, ends: bool) -> None:
    """Leave only some layers to be trained, and the embedding and the head with the last norm where ``ends`` says so."""
    stack = data_parallel.layers_of(model)
    for parameter in model.parameters():
        parameter.requires_grad_(ends)
    for number, layer in enumerate(stack):
        layer.requires_grad_(number in layers)


def _instantiate(request: TraceRequest, device: str) -> torch.nn.Module:
    import transformers

    config = _config(request)
    kind = _class_of(config, transformers)
    config._attn_implementation = request.attention if getattr(kind, "_supports_sdpa", False) else "eager"
    if request.experts:
        config._experts_implementation = request.experts
    with torch.device(device):
        return from_config(kind, config, dtype_of(request.param_dtype))


def from_config(kind: Any, config: Any, dtype: torch.dtype) -> torch.nn.Module:
    """A model of that class with random weights of that type, whatever type its config states."""
    setattr(config, "torch_dtype" if "torch_dtype" in vars(config) else "dtype", dtype)  # renamed in transformers 4.56
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        model: torch.nn.Module = kind._from_config(config)
    finally:
        torch.set_default_dtype(before)
    return model


def _config(request: TraceRequest) -> Any:
    import transformers

    values = dict(request.config)
    kind = values.pop("model_type", None) or _type_of(values.get("architectures"), transformers)
    if values.get("auto_map") and kind not in transformers.CONFIG_MAPPING:
        raise UnmodelledError(f"model_type {kind!r} needs the repository's own code, which is never run: use the forecast")
    if kind not in transformers.CONFIG_MAPPING:
        raise unknown_name("model_type", str(kind), transformers.CONFIG_MAPPING.keys(), hint="(transformers has no such class)")
    values.pop("quantization_config", None)
    config = transformers.AutoConfig.for_model(kind, **values)
    if request.layers is not None:
        _cut_layers(config.get_text_config(), request.layers)
    return config


def _type_of(architectures: Any, transformers: Any) -> str | None:
    """The model_type of a class that transformers knows by name."""
    known = [getattr(transformers, name) for name in architectures or () if hasattr(transformers, name)]
    return known[0].config_class.model_type if known else None


def _cut_layers(config: Any, layers: int) -> None:
    config.num_hidden_layers = layers
    kinds = vars(config).get("layer_types")  # some classes derive it instead
    if kinds:
        config.layer_types = kinds[:layers]


def _class_of(config: Any, transformers: Any) -> Any:
    for name in config.architectures or ():
        if name.endswith(_LANGUAGE_MODELS) and hasattr(transformers, name):
            return getattr(transformers, name)
    for auto in ("CausalLM", "ImageTextToText", "Seq2SeqLM", "MaskedLM"):
        classes = getattr(transformers, f"AutoModelFor{auto}")._model_mapping
        if type(config) in classes:
            return classes[type(config)]
    raise UnmodelledError(f"transformers {transformers.__version__} has no language model for {type(config).__name__}")


def _quantize(model: torch.nn.Module, request: TraceRequest, session: Session) -> None:
    if session.backend.device_type != "cuda":
        raise QuestionError("4-bit weights can only be traced with the cuda backend")
    if request.quant not in {"nf4", "fp4"}:
        raise unknown_name("quantisation to trace", str(request.quant), ("nf4", "fp4"))
    compute = dtype_of(request.autocast or request.param_dtype)
    scheme = four_bit.Scheme(kind=request.quant, compute=compute, double=request.double_quant)
    four_bit.quantize_linears(model, scheme=scheme, device=session.backend.device_type)
    session.collect()
