"""Optimizers as rows, one each, with where its states were read; names and aliases are those people type.

"Run" means that the class was stepped once and its state tensors listed.
"""

import msgspec


class Optimizer(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer.

    ``moments``: tensors of the parameter's size it keeps; ``state_width``: their bytes (0 = the master's dtype); ``block``:
    elements per fp32 scale of narrow states; ``whole_below``: tensors smaller than that keep states of ``whole_width`` bytes
    (0 = the parameter's); ``shape``: how states follow a matrix: elementwise, factored, kronecker, low_rank, momentum,
    per_row; ``vector_moments``: at least that many for vectors and, where matrices are treated apart, for both ends;
    ``factors``: copies of the row and column factors and ``factor_width`` their bytes (0 = the states'); ``fixed_rank``: of
    the projection; ``kahan``: one more tensor for 16-bit parameters; ``step_copies``: parameter-size temporaries of a foreach
    step; ``paged``: states live in managed memory, outside the caching allocator; ``gradient_free``: the update happens
    inside backward; ``wide_ends``: the Trainer asks for fp32 states of embeddings.
    """

    name: str
    moments: float
    state_width: float = 0
    block: int = 0
    whole_below: int = 0
    whole_width: float = 0
    shape: str = "elementwise"
    vector_moments: float = 2
    factors: int = 1
    factor_width: float = 0
    fixed_rank: int = 0
    kahan: bool = False
    step_copies: float = 1.0
    paged: bool = False
    gradient_free: bool = False
    wide_ends: bool = False
    source: str


_TORCH = "torch 2.13, optim (run)"
_BNB = "bitsandbytes 0.50.2, optim/optimizer.py (run): blocks of 256, under 4096 elements fp32, trainer.py widens embeddings"
_BNB32 = "bitsandbytes 0.50.2, optim/optimizer.py (run): fp32 whatever the parameter"
_AO = "torchao 0.18.0, optim/adam.py, _new_buffer: whole below 4096 elements or where a block is incomplete"
_PO = "pytorch-optimizer 4.1.0 (run)"


def _bnb8(name: str, moments: float, *, paged: bool = False) -> Optimizer:
    return Optimizer(name=name, moments=moments, state_width=1, block=256, whole_below=4096, whole_width=4, step_copies=0,
                     paged=paged, wide_ends=True, source=_BNB)  # fmt: skip


def _bnb32(name: str, moments: float, *, paged: bool = False) -> Optimizer:
    return Optimizer(name=name, moments=moments, state_width=4, step_copies=0, paged=paged, source=_BNB32)


def _torchao(name: str, width: float, block: int) -> Optimizer:
    return Optimizer(name=name, moments=2, state_width=width, block=block, whole_below=4096, step_copies=0, source=_AO)


def _plain(name: str, moments: float, source: str, *, copies: float = 1) -> Optimizer:
    return Optimizer(name=name, moments=moments, step_copies=copies, source=source)


def _galore(name: str, width: float = 0, *, layerwise: bool = False) -> Optimizer:
    return Optimizer(name=name, moments=2, state_width=width, block=256 if width else 0, shape="low_rank",
                     step_copies=0, gradient_free=layerwise,
                     source="galore-torch 1.0, galore_projector.py (run): rank-r states, an r x min(m, n) projector")  # fmt: skip


ROWS = (
    _plain("adamw", 2, f"{_TORCH}: exp_avg, exp_avg_sq; foreach holds one sqrt of the second"),
    _plain("amsgrad", 3, f"{_TORCH}: amsgrad=True keeps the largest second moment"),
    _plain("nadam", 2, _TORCH),
    _plain("radam", 2, _TORCH),
    _plain("adamax", 2, _TORCH),
    _plain("adadelta", 2, _TORCH),
    _plain("rprop", 2, _TORCH),
    _plain("adagrad", 1, _TORCH),
    _plain("rmsprop", 1, _TORCH),
    _plain("asgd", 1, _TORCH),
    _plain("sgd", 0, _TORCH, copies=0),
    _plain("sgd_momentum", 1, f"{_TORCH}: momentum_buffer", copies=0),
    Optimizer(
        name="adamw_anyprecision",
        moments=2,
        state_width=4,
        step_copies=0,
        source="transformers 5.23, trainer_optimizer.py: momentum and variance float32, no Kahan sum",
    ),
    _bnb8("adamw_8bit", 2),
    _bnb8("paged_adamw_8bit", 2, paged=True),
    _bnb32("adamw_bnb", 2),
    _bnb32("paged_adamw", 2, paged=True),
    _bnb8("lion_8bit", 1),
    _bnb8("paged_lion_8bit", 1, paged=True),
    _bnb32("lion_bnb", 1),
    _bnb32("paged_lion", 1, paged=True),
    _bnb8("ademamix_8bit", 3),
    _bnb8("paged_ademamix_8bit", 3, paged=True),
    _bnb32("ademamix", 3),
    _bnb32("paged_ademamix", 3, paged=True),
    _bnb8("rmsprop_8bit", 1),
    _bnb32("rmsprop_bnb", 1),
    _bnb8("adagrad_8bit", 1),
    _bnb8("lamb_8bit", 2),
    _bnb8("sgd_8bit", 1),
    _bnb32("lars", 1),
    _torchao("adamw_torchao_8bit", 1, 256),
    _torchao("adamw_torchao_4bit", 0.5, 128),
    _torchao("adamw_torchao_fp8", 1, 256),
    _plain("lion", 1, f"arXiv 2302.06675: one momentum; {_PO}", copies=0),
    _plain("lamb", 2, _PO),
    _plain("laprop", 2, _PO, copies=0),
    _plain("adopt", 2, _PO, copies=0),
    _plain("adan", 4, f"{_PO}: three moments and the previous gradient", copies=0),
    _plain("prodigy", 4, f"{_PO}: two moments, the start and its products", copies=0),
    _plain("grokadamw", 3, f"{_PO}: two moments and a slow gradient", copies=0),
    _plain("tiger", 1, _PO, copies=0),
    _plain("sophia", 2, "arXiv 2305.14342: momentum and the diagonal Hessian", copies=0),
    Optimizer(
        name="stable_adamw",
        moments=2,
        kahan=True,
        step_copies=1,
        source="torch-optimi: kahan_sum unset is on for 16-bit parameters; trainer_optimizer.py leaves it unset",
    ),
    _plain("schedule_free_adamw", 2, "schedulefree 1.4.1 (run): z and exp_avg_sq, no first moment"),
    _plain("schedule_free_radam", 2, "schedulefree 1.4.1 (run)"),
    _plain("schedule_free_sgd", 1, "schedulefree 1.4.1 (run): z", copies=0),
    Optimizer(
        name="adafactor",
        moments=0,
        state_width=4,
        shape="factored",
        vector_moments=1,
        factor_width=4,
        step_copies=0,
        source="transformers 5.23, optimization.py (run): row and column means in fp32, no first moment",
    ),
    Optimizer(name="adafactor_torch", moments=0, shape="factored", vector_moments=1, step_copies=0, source=_TORCH),
    Optimizer(
        name="came",
        moments=1,
        shape="factored",
        factors=2,
        vector_moments=2,
        step_copies=0,
        source=f"arXiv 2307.02047; {_PO}: momentum, factors of the second moment and of the confidence",
    ),
    Optimizer(
        name="adam_mini",
        moments=1,
        shape="per_row",
        vector_moments=2,
        step_copies=0,
        source="adam-mini 1.1.1, adam_mini.py: full first moment; one second moment per output row at most",
    ),
    Optimizer(
        name="muon",
        moments=1,
        shape="momentum",
        step_copies=0,
        source="torch 2.13, optim/_muon.py (run): momentum of matrices; AdamW for the ends and vectors (arXiv 2502.16982)",
    ),
    Optimizer(
        name="shampoo",
        moments=1,
        shape="kronecker",
        factors=2,
        vector_moments=1,
        step_copies=0,
        source=f"arXiv 1802.09568; {_PO}: each factor and its inverse root, momentum",
    ),
    Optimizer(
        name="soap",
        moments=2,
        shape="kronecker",
        factors=2,
        step_copies=0,
        source=f"arXiv 2409.11321; {_PO}: Adam moments, two factors and their eigenbases, none of a side over 10,000",
    ),
    _galore("galore_adamw"),
    _galore("galore_adamw_8bit", 1),
    _galore("galore_adamw_layerwise", layerwise=True),
    _galore("galore_adamw_8bit_layerwise", 1, layerwise=True),
    Optimizer(
        name="galore_adafactor",
        moments=0,
        state_width=4,
        shape="factored",
        vector_moments=1,
        factor_width=4,
        step_copies=0,
        source="galore-torch 1.0, adafactor.py: factors of the projected gradient (counted as of the whole one)",
    ),
    Optimizer(
        name="q_galore_adamw_8bit",
        moments=2,
        state_width=1,
        block=256,
        shape="low_rank",
        step_copies=0,
        source="arXiv 2407.08296: 8-bit states of the projected gradient; its 4-bit projector counted in 16",
    ),
    Optimizer(
        name="apollo_adamw",
        moments=2,
        shape="low_rank",
        step_copies=0,
        source="apollo-torch 1.0.3 (run): moments of rank r and the r x min(m, n) random projector",
    ),
    Optimizer(
        name="apollo_mini",
        moments=2,
        shape="low_rank",
        fixed_rank=1,
        step_copies=0,
        source="apollo-torch 1.0.3 (run), scale_type tensor, rank 1",
    ),
    Optimizer(
        name="apollo_adamw_layerwise",
        moments=2,
        shape="low_rank",
        step_copies=0,
        gradient_free=True,
        source="apollo-torch 1.0.3; transformers frees each gradient after its own step",
    ),
    Optimizer(
        name="lomo",
        moments=0,
        step_copies=0,
        gradient_free=True,
        source="lomo-optim 0.1.1, lomo.py: updates inside backward, no state",
    ),
    Optimizer(
        name="adalomo",
        moments=0,
        state_width=4,
        shape="factored",
        vector_moments=1,
        factor_width=4,
        step_copies=0,
        gradient_free=True,
        source="lomo-optim 0.1.1, adalomo.py: fp32 row and column means",
    ),
    _plain("none", 0, "forward and backward only", copies=0),
)

ALIASES = {
    "adam": "adamw", "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_torch_xla": "adamw", "adamw_hf": "adamw",
    "adamw_torch_npu_fused": "adamw", "adamw_apex_fused": "adamw", "fusedadam": "adamw", "decoupled_adamw": "adamw",
    "cpuoffload_adamw": "adamw", "deepspeedcpuadam": "adamw", "hybridadam": "adamw", "distributed_fused_adam": "adamw",
    "cpuoffloadoptimizer": "adamw", "adamw_bnb_8bit": "adamw_8bit", "adam_8bit": "adamw_8bit", "adam8bit": "adamw_8bit",
    "adamw8bit": "adamw_8bit", "adamw_32bit": "adamw_bnb", "paged_adamw_32bit": "paged_adamw", "pagedadamw": "paged_adamw",
    "pagedadamw32bit": "paged_adamw", "pagedadamw8bit": "paged_adamw_8bit", "pagedadam8bit": "paged_adamw_8bit",
    "adamw_torch_8bit": "adamw_torchao_8bit", "adamw_torch_4bit": "adamw_torchao_4bit", "ao_adamw_8bit": "adamw_torchao_8bit",
    "ao_adamw_4bit": "adamw_torchao_4bit", "ao_adamw_fp8": "adamw_torchao_fp8", "adamwfp8": "adamw_torchao_fp8",
    "adamw4bit": "adamw_torchao_4bit", "lion_32bit": "lion_bnb", "paged_lion_32bit": "paged_lion", "lion8bit": "lion_8bit",
    "decoupled_lionw": "lion", "lion_pytorch": "lion", "paged_ademamix_32bit": "paged_ademamix", "ademamix_32bit": "ademamix",
    "rmsprop_bnb_8bit": "rmsprop_8bit", "rmsprop_bnb_32bit": "rmsprop_bnb", "sgd+momentum": "sgd_momentum",
    "came_pytorch": "came", "optimi_adamw": "stable_adamw", "schedulefree": "schedule_free_adamw",
    "distributed_shampoo": "shampoo",
    "dist_muon": "muon", "muonclip": "muon", "galore": "galore_adamw", "apollo": "apollo_adamw",
    "galore_adafactor_layerwise": "galore_adafactor", "q_galore": "q_galore_adamw_8bit", "badam": "adamw",
}  # fmt: skip
