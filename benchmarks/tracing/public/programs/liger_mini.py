"""Forward and backward of a DeepSeek-V3 of two layers, with and without Liger's kernels; no optimizer."""

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM
from transformers.models.deepseek_v3 import modeling_deepseek_v3

PASSES = 2


def main(*, layers: int, seq: int, liger: bool) -> None:
    """Run the passes, batch 1; gradients are dropped between them."""
    if liger:
        use_liger()
    config = DeepseekV3Config(
        num_hidden_layers=layers, first_k_dense_replace=1, n_routed_experts=16, num_experts_per_tok=2, n_group=2, topk_group=1,
        routed_scaling_factor=1.0, use_cache=False, dtype=torch.bfloat16,
    )  # fmt: skip
    with torch.device("cuda"):
        model = DeepseekV3ForCausalLM._from_config(config, dtype=torch.bfloat16).train()
        ids = torch.zeros(1, seq, dtype=torch.long)
    for _ in range(PASSES):
        model.zero_grad()
        forward_and_backward(model, ids)


def forward_and_backward(model: torch.nn.Module, ids: torch.Tensor) -> None:
    """One pass; the logits stay to its end."""
    output = model(input_ids=ids, labels=ids)
    output.loss.backward()


def use_liger() -> None:
    """What the pull request puts in: norms, dense and shared feed-forwards, and the loss fused with the head."""
    from liger_kernel.transformers.model.loss_utils import LigerForCausalLMLoss
    from liger_kernel.transformers.rms_norm import LigerRMSNorm
    from liger_kernel.transformers.swiglu import LigerQwen3MoeSwiGLUMLP

    def forward(model: DeepseekV3ForCausalLM, input_ids: torch.Tensor, labels: torch.Tensor) -> object:
        hidden = model.model(input_ids=input_ids).last_hidden_state
        loss = LigerForCausalLMLoss(
            hidden_states=hidden, lm_head_weight=model.lm_head.weight, labels=labels, hidden_size=model.config.hidden_size
        )
        return type("Output", (), {"loss": loss})

    modeling_deepseek_v3.DeepseekV3RMSNorm = LigerRMSNorm
    modeling_deepseek_v3.DeepseekV3MLP = LigerQwen3MoeSwiGLUMLP
    DeepseekV3ForCausalLM.forward = forward
