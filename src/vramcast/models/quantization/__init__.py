"""How weights are stored: formats as rows, schemes as rules, and the bytes that follow.

scheme = scheme_for(model)                  # what the checkpoint's own config says, else its dtype
scheme = scheme_for(model, quant="awq")     # as if it were quantised so
weight_bytes(model, scheme, tp=2)           # bytes on one rank
weights_term(model, scheme, tp=2)           # the same, part by part
"""

from vramcast.models.quantization.plan import Format
from vramcast.models.quantization.scheme import Scheme, Unquantized, scheme_for, scheme_names
from vramcast.models.quantization.weights import weight_bytes, weights_term

__all__ = ["Format", "Scheme", "Unquantized", "scheme_for", "scheme_names", "weight_bytes", "weights_term"]
