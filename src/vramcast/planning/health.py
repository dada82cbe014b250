"""What the state of a machine means for training and serving: one line per fact, with what follows and what to do.

Sources: NVIDIA's CUDA toolkit release notes (least driver per CUDA), its CUDA programming guide and PyTorch's build matrix
(compute capabilities), the readmes of flash-attention, bitsandbytes and DeepSpeed, NCCL's and PyTorch's environment variables.
"""

import re

import msgspec

from vramcast.hardware.health import IDLE_BYTES, LEAST_SHARED_MEMORY_BYTES, CardState, State
from vramcast.units import gib

# Least driver for a CUDA major version, with minor version compatibility (CUDA toolkit release notes, table 2).
LEAST_DRIVER = {11: (450, 80), 12: (525, 60), 13: (580, 65)}
# The CUDA that first knew a compute capability (CUDA toolkit release notes).
FIRST_CUDA = {
    (12, 0): (12, 8),
    (10, 3): (12, 9),
    (10, 0): (12, 8),
    (9, 0): (11, 8),
    (8, 9): (11, 8),
    (8, 6): (11, 1),
    (8, 0): (11, 0),
}
_LEAST_BITSANDBYTES = {(10, 0): "0.45.3"}
_MEMORY_OF_ECC_ON_GDDR = 1 / 16
_HBM = re.compile(r"\b(?:A100|A800|A30|H100|H200|H20|H800|B100|B200|B300|GH200|GB200|GB300|V100|P100)\b")


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One fact: ``level`` ok, note, warn or bad; ``so_what``: what follows, "" where nothing does."""

    topic: str
    level: str
    what: str
    so_what: str = ""


def lines_of(state: State) -> tuple[Line, ...]:
    """Everything worth saying about a machine, in the order of the page."""
    found = [line for card in state.cards for line in _card(card)]
    found += [*_driver(state), *_torch(state), *_pins(state), *_packages(state), *_operators(state)]
    found += [*_tf32(state), *_network(state), *_shared_memory(state), *_settings(state)]
    return (*found, *(Line(topic="not read", level="note", what=text) for text in state.lacks))


def _card(card: CardState) -> list[Line]:
    head = f"GPU {card.index} {card.name}"
    size = f", {gib(card.total_bytes, 1)}" if card.total_bytes else ""
    capability = f", compute capability {card.capability[0]}.{card.capability[1]}" if card.capability else ""
    found = [Line(topic="card", level="ok", what=f"{head}{size}{capability}")]
    for rule in (_held, _ecc, _mig, _power, _clock, _bus):
        found += rule(card)
    return found


def _held(card: CardState) -> list[Line]:
    if card.used_bytes is None or card.used_bytes < IDLE_BYTES:
        return []
    who = ", ".join(f"{h.name or 'process'} {h.pid}{f' {gib(h.bytes)}' if h.bytes else ''}" for h in card.holders[:6])
    return [
        Line(
            topic="memory",
            level="warn",
            what=f"GPU {card.index}: {gib(card.used_bytes)} are held{f' by {who}' if who else ''}",
            so_what="a forecast with --gpu local takes them off; end those processes or choose another card",
        )
    ]


def _ecc(card: CardState) -> list[Line]:
    found = []
    if card.uncorrected_errors:
        found.append(
            Line(
                topic="ECC",
                level="bad",
                what=f"GPU {card.index}: {card.uncorrected_errors} uncorrected memory errors since the driver was loaded",
                so_what="results may be wrong and jobs may die: reset the card, and have it replaced when they come back",
            )
        )
    if card.ecc and not _HBM.search(card.name):
        found.append(
            Line(
                topic="ECC",
                level="note",
                what=f"GPU {card.index}: ECC is on",
                so_what=f"on GDDR memory it keeps 1/16 ({_MEMORY_OF_ECC_ON_GDDR:.1%}) of the memory, and some bandwidth",
            )
        )
    return found


def _mig(card: CardState) -> list[Line]:
    if not card.mig:
        return []
    slices = "a program sees one slice: forecast with its size (--gpu 10GiB), and no NCCL between slices of one card"
    return [Line(topic="MIG", level="warn", what=f"GPU {card.index}: MIG is on", so_what=slices)]


def _power(card: CardState) -> list[Line]:
    limit, usual = card.power_limit_w, card.power_default_w
    if not limit or not usual or limit >= 0.97 * usual:
        return []
    what = f"GPU {card.index}: capped at {limit:.0f} of {usual:.0f} W"
    return [
        Line(topic="power", level="note", what=what, so_what="sustained matmuls run 5 to 20 % slower; decoding hardly notices")
    ]


def _clock(card: CardState) -> list[Line]:
    if not card.slowed_by:
        return []
    now = f" ({card.clock_mhz:,} of {card.clock_highest_mhz:,} MHz)" if card.clock_mhz and card.clock_highest_mhz else ""
    only_cap = card.slowed_by == ("power cap",)
    remedy = "usual under load" if only_cap else "look at cooling and power supply: every measurement on this card is too slow"
    what = f"GPU {card.index}: clock lowered by {', '.join(card.slowed_by)}{now}"
    return [Line(topic="clock", level="note" if only_cap else "bad", what=what, so_what=remedy)]


def _bus(card: CardState) -> list[Line]:
    width, most = card.pcie_width, card.pcie_width_highest
    if not width or not most or width >= most:
        return []
    share = width / most
    return [
        Line(
            topic="PCIe",
            level="warn",
            what=f"GPU {card.index}: {width} of {most} PCIe lanes",
            so_what=f"loading, offload and traffic between cards run at {share:.0%} of the slot: reseat it, or another slot",
        )
    ]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", text)[:3])


def _driver(state: State) -> list[Line]:
    if not state.driver:
        return []
    runs = f", runs CUDA up to {state.driver_cuda}" if state.driver_cuda else ""
    found = [Line(topic="driver", level="ok", what=f"driver {state.driver}{runs}")]
    wants = _numbers(state.torch_cuda) if state.torch_cuda[:1].isdigit() else ()
    least = LEAST_DRIVER.get(wants[0]) if wants else None
    if least and _numbers(state.driver)[:2] < least:
        need = f"torch was built for CUDA {state.torch_cuda}, which needs driver {least[0]}.{least[1]} or newer"
        found.append(
            Line(topic="driver", level="bad", what=need, so_what="update the driver, or install torch for an older CUDA")
        )
    return found


def _torch(state: State) -> list[Line]:
    version = state.packages.get("torch")
    if not version:
        return []
    cuda = state.torch_cuda
    found = [Line(topic="torch", level="ok", what=f"torch {version}{f', built for CUDA {cuda}' if cuda[:1].isdigit() else ''}")]
    if cuda == "cpu" and state.cards:
        found.append(
            Line(
                topic="torch",
                level="bad",
                what="this torch is built without CUDA, and there is a GPU",
                so_what="pip install torch --index-url https://download.pytorch.org/whl/cu128",
            )
        )
    built = _numbers(cuda) if cuda[:1].isdigit() else ()
    for card in state.cards:
        first = FIRST_CUDA.get(card.capability or (0, 0))
        if built and first and built[:2] < first:
            what = f"GPU {card.index} needs CUDA {first[0]}.{first[1]} or newer, torch was built for {cuda}"
            found.append(
                Line(topic="torch", level="bad", what=what, so_what="'no kernel image is available': install a newer torch")
            )
    return found


def _pins(state: State) -> list[Line]:
    """Exact versions that one package demands of another and does not get."""
    found = []
    for package, other, wanted in state.pins:
        have = state.packages.get(other)
        if have and have.partition("+")[0] != wanted.partition("+")[0]:
            what = f"{package} {state.packages.get(package, '')} was made for {other} {wanted}, {have} is installed"
            found.append(
                Line(
                    topic="versions",
                    level="bad",
                    what=what,
                    so_what="undefined symbols or wrong kernels: install the pair together",
                )
            )
    return found


def _packages(state: State) -> list[Line]:
    rest = {name: version for name, version in state.packages.items() if name != "torch"}
    found = []
    if rest:
        found.append(Line(topic="packages", level="ok", what=", ".join(f"{n} {v}" for n, v in sorted(rest.items()))))
    if state.nccl:
        found.append(Line(topic="NCCL", level="ok", what=f"NCCL {state.nccl}"))
    return [*found, *_flash(state), *_bitsandbytes(state), *_deepspeed(state)]


def _flash(state: State) -> list[Line]:
    version, torch = state.packages.get("flash-attn"), state.packages.get("torch", "")
    oldest = min((c.capability for c in state.cards if c.capability), default=None)
    if not version:
        if torch and oldest and oldest >= (8, 0):
            text = "flash-attn is not installed: PyTorch's own attention is used (its FlashAttention-2 where masks allow it)"
            return [Line(topic="flash-attn", level="note", what=text)]
        return []
    found = []
    if oldest and oldest < (8, 0):
        what = f"flash-attn {version} needs Ampere or newer, the oldest card here has {oldest[0]}.{oldest[1]}"
        found.append(Line(topic="flash-attn", level="bad", what=what, so_what="attn_implementation='sdpa'"))
    built = re.search(r"torch(\d+\.\d+)", version)
    if built and torch and not torch.startswith(built[1]):
        what = f"this flash-attn wheel was built for torch {built[1]}, {torch} is installed"
        found.append(
            Line(topic="flash-attn", level="bad", what=what, so_what="'undefined symbol' on import: install the wheel for it")
        )
    return found


def _bitsandbytes(state: State) -> list[Line]:
    version = state.packages.get("bitsandbytes")
    newest = max((c.capability for c in state.cards if c.capability), default=None)
    for since, least in _LEAST_BITSANDBYTES.items():
        if version and newest and newest >= since and _numbers(version) < _numbers(least):
            what = f"bitsandbytes {version} has no kernels for Blackwell"
            return [Line(topic="bitsandbytes", level="bad", what=what, so_what=f"install {least} or newer")]
    return []


def _deepspeed(state: State) -> list[Line]:
    if "deepspeed" not in state.packages:
        return []
    if not state.nvcc:
        text = "DeepSpeed compiles its operators when they are first used, and there is no nvcc"
        return [
            Line(topic="DeepSpeed", level="warn", what=text, so_what="CPU Adam and fused Adam fail: install the CUDA toolkit")
        ]
    built = state.torch_cuda if state.torch_cuda[:1].isdigit() else ""
    if built and _numbers(built)[:1] != _numbers(state.nvcc)[:1]:
        what = f"nvcc is {state.nvcc}, torch was built for CUDA {built}"
        return [
            Line(
                topic="DeepSpeed",
                level="bad",
                what=what,
                so_what="operators refuse to build: install the toolkit of torch's version",
            )
        ]
    return []


def _operators(state: State) -> list[Line]:
    """ds_report's table: an operator that is neither built nor can be."""
    broken = [name for name, (installed, compatible) in state.operators.items() if not installed and not compatible]
    if not broken:
        return []
    names = ", ".join(broken)
    return [
        Line(
            topic="DeepSpeed",
            level="warn",
            what=f"operators that cannot be built here: {names}",
            so_what="libaio-dev for async_io (NVMe offload), cutlass for evoformer_attn; the others need nvcc and a compiler",
        )
    ]


def _tf32(state: State) -> list[Line]:
    able = [c for c in state.cards if (c.capability or (0, 0)) >= (8, 0)]
    if not able:
        return []
    forced = state.settings.get("NVIDIA_TF32_OVERRIDE") or state.settings.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
    if forced == "1":
        return [Line(topic="TF32", level="note", what="TF32 is forced on: fp32 matmuls compute with 19 bits (1+8+10)")]
    what = "TF32 is off for matmuls unless a program sets it (PyTorch's default since 1.12)"
    so_what = "fp32 matmuls run at an eighth of the TF32 rate on an A100: torch.set_float32_matmul_precision('high')"
    return [Line(topic="TF32", level="note", what=what, so_what=so_what)]


def _network(state: State) -> list[Line]:
    found = []
    for port in state.network:
        up = port.state.upper() in ("ACTIVE", "LINK UP", "")
        found.append(
            Line(
                topic="network",
                level="ok" if up else "warn",
                what=f"{port.name} {port.rate} {port.state.lower()}".strip(),
                so_what="" if up else "NCCL takes the others, or sockets: NCCL_DEBUG=INFO says which",
            )
        )
    if not state.network and len(state.cards) > 1 and "this machine" in state.told_by:
        text = "no RDMA network card: training over several nodes would go through sockets"
        found.append(Line(topic="network", level="note", what=text))
    return found


def _shared_memory(state: State) -> list[Line]:
    size = state.shared_memory_bytes
    if size is None or size >= LEAST_SHARED_MEMORY_BYTES:
        return []
    return [
        Line(
            topic="/dev/shm",
            level="warn",
            what=f"shared memory is {gib(size)}",
            so_what="data loaders and NCCL die with 'bus error' or 'No space left': docker run --shm-size=16g (or --ipc=host)",
        )
    ]


_SETTINGS = {
    "NCCL_P2P_DISABLE": "cards exchange through host memory: several times slower without NVLink and with it",
    "NCCL_IB_DISABLE": "nodes exchange through sockets instead of InfiniBand",
    "NCCL_SHM_DISABLE": "cards of one node without peer access exchange through sockets",
    "CUDA_LAUNCH_BLOCKING": "every kernel is waited for: for debugging only, training is many times slower",
}


def _settings(state: State) -> list[Line]:
    found = []
    for name, value in state.settings.items():
        slow = name in _SETTINGS and value not in ("", "0")
        found.append(
            Line(
                topic="setting",
                level="warn" if slow else "note",
                what=f"{name}={value}",
                so_what=_SETTINGS[name] if slow else "",
            )
        )
    return found
