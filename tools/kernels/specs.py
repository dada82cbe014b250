"""The constants of each operator: start, least and most of each, and those that a measured card has of its own."""

from fitting import Spec

_MEMORY = {"bandwidth": (0.85, 0.2, 1.0), "launch_us": (8.0, 0.0, 80.0)}
_BLEND = {"blend": (2.0, 1.0, 8.0)}
_CARD = ("compute", "bandwidth", "launch_us")
_MODULE = Spec(
    {
        "bandwidth": (0.7, 0.05, 1.0), "launch_us": (40.0, 0.0, 400.0), "linear": (0.6, 0.02, 4.0), "compute": (0.4, 0.01, 1.0),
        "index": (0.3, 0.005, 2.0), "host_us": (0.0, 0.0, 4000.0), **_BLEND,
    },
    ("linear", "bandwidth", "launch_us"),
)  # fmt: skip
_RECURRENT = Spec(
    {
        "compute": (0.1, 0.001, 1.0), "bandwidth": (0.7, 0.02, 1.0), "launch_us": (10.0, 0.0, 200.0),
        "chain_us": (2.0, 0.0, 60.0), **_BLEND,
    },
    _CARD,
)  # fmt: skip
_COLLECTIVE = Spec(
    {
        "launch_us": (8.0, 0.0, 300.0), "root_ns": (3.0, 0.0, 400.0),
            "one_shot": (0.3, 0.001, 1.2), "second_us": (15.0, 0.0, 900.0),
        "link": (0.75, 0.001, 1.2),
    },
    ("launch_us", "link"),
)  # fmt: skip
SPECS = {
    "gemm": Spec(
        {
            "compute": (0.8, 0.2, 1.05), "bandwidth": (0.85, 0.3, 1.0), "launch_us": (3.0, 0.0, 60.0), "l2": (4.0, 0.5, 30.0),
            "wave_us": (0.3, 0.0, 8.0), "split_us": (3.0, 0.0, 40.0), "blend": (3.0, 1.0, 8.0), "throttle": (0.1, 0.0, 0.6),
        },
        _CARD,
    ),
    "decode_attention": Spec(
        {
            **_MEMORY, "l2": (2.0, 1.0, 20.0), "compute": (0.3, 0.02, 1.0),
            "unit_us": (2.0, 0.0, 20.0), "tile_us": (0.5, 0.0, 10.0),
            "cold_us": (3.0, 0.0, 20.0), "single": (1.0, 0.2, 4.0), "blend": (2.5, 1.0, 12.0),
        },
        ("bandwidth", "launch_us", "unit_us"),
    ),
    "prefill_attention": Spec(
        {
            **_MEMORY, "compute": (0.7, 0.05, 1.0), "tile_us": (1.0, 0.0, 10.0),
            "blend": (1.4, 1.0, 12.0), "tail": (1.0, 0.2, 3.0),
            "softmax_flops": (100.0, 0.0, 1000.0), "stores": (0.5, 0.0, 6.0),
        },
        _CARD,
    ),
    "moe": Spec(
        {
            "compute": (0.4, 0.03, 1.0), "bandwidth": (0.9, 0.2, 1.0), "launch_us": (30.0, 0.0, 300.0), "l2": (5.0, 0.3, 40.0),
            "blend": (1.5, 1.0, 8.0), "tile_us": (0.5, 0.0, 8.0), "skew": (0.9, 0.0, 1.5), "unrouted": (0.3, 0.0, 2.0),
            "routing_ns": (25.0, 0.0, 60.0),
        },
        _CARD,
    ),
    "mla_decode": Spec(
        {**_MEMORY, "compute": (0.3, 0.01, 1.0), "unit_us": (2.0, 0.0, 60.0),
            "tile_us": (0.5, 0.0, 20.0), "blend": (2.5, 1.0, 12.0)},
        _CARD,
    ),
    "mla_prefill": Spec({**_MEMORY, "compute": (0.5, 0.02, 1.0)}, _CARD),
    "elementwise": Spec(
        {"bandwidth": (0.8, 0.2, 1.0), "l2": (1.5, 1.0, 12.0), "launch_us": (5.0, 0.0, 100.0)}, ("bandwidth", "launch_us")
    ),
    "exchange": Spec(
        {"launch_us": (20.0, 0.0, 600.0), "token_ns": (10.0, 0.0, 2000.0), "link": (0.5, 0.005, 1.0)}, ("launch_us", "link")
    ),
}  # fmt: skip
HOST = {"host_us": (100.0, 0.0, 400.0)}


def spec_of(operator: str, backend: str = "") -> Spec:
    """The constants to fit for an operator; a back end measured through Python has the host's time as well."""
    if backend.endswith("eager") and operator == "gemm":
        return Spec(SPECS["gemm"].constants | HOST, ("launch_us",))
    if "module" in operator:
        return _MODULE
    if operator.startswith(("recurrent", "convolution")):
        return _RECURRENT
    if operator in {"dispatch", "combine"}:
        return SPECS["exchange"]
    return SPECS.get(operator, _COLLECTIVE)
