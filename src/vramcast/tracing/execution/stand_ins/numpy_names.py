"""Names that NumPy 1.24 and 2 took away and that scripts of before still use: each is what NumPy says to write instead.

Source: NumPy 2.0 migration guide, and the release notes of 1.24 (aliases of Python's types).
"""

from typing import Any

from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported

_NOW = {
    "Inf": "inf", "Infinity": "inf", "infty": "inf", "PINF": "inf", "NaN": "nan", "NAN": "nan", "float_": "float64",
    "complex_": "complex128", "cfloat": "complex128", "singlecomplex": "complex64", "longfloat": "longdouble",
    "longcomplex": "clongdouble", "string_": "bytes_", "unicode_": "str_", "round_": "round", "product": "prod",
    "cumproduct": "cumprod", "alltrue": "all", "sometrue": "any", "row_stack": "vstack", "trapz": "trapezoid", "in1d": "isin",
    "bool8": "bool_", "mat": "asmatrix", "asfarray": "asarray",
}  # fmt: skip
_PLAIN: dict[str, Any] = {
    "float": float, "int": int, "bool": bool, "object": object, "complex": complex, "str": str, "long": int, "unicode": str,
    "NINF": float("-inf"), "PZERO": 0.0, "NZERO": -0.0,
}  # fmt: skip


def install(session: Session) -> None:
    """Answer for them, with a note that the script wants an older NumPy."""
    when_imported("numpy", lambda module: _patch(module, session))


def _patch(module: Any, session: Session) -> None:
    original = module.__getattr__

    def find(name: str) -> Any:
        if name in _PLAIN or (name in _NOW and hasattr(module, _NOW[name])):
            session.notes[f"np.{name} is gone from NumPy {module.__version__}: answered as before"] = None
            return _PLAIN[name] if name in _PLAIN else getattr(module, _NOW[name])
        return original(name)

    module.__getattr__ = find
    fromstring = module.fromstring

    def of_bytes(string: Any, dtype: Any = float, count: int = -1, *args: Any, sep: str = "", **options: Any) -> Any:
        if sep or args:
            return fromstring(string, dtype, count, *args, sep=sep, **options)
        session.notes["np.fromstring of bytes is gone from NumPy 2.3: answered as before"] = None
        return module.frombuffer(string.encode() if isinstance(string, str) else string, dtype, count).copy()

    module.fromstring = of_bytes
