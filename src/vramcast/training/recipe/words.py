"""The words each part of a recipe takes: what a user overrides is checked against these before anything is computed."""

from vramcast.errors import QuestionError, unknown_name
from vramcast.training.activations.policy import COUNTED, POLICIES
from vramcast.training.activations.regions import MODULES
from vramcast.training.loss import KINDS
from vramcast.training.recipe.recipe import Recipe
from vramcast.training.saving import SAVES

WORDS = {
    "attention": ("flash", "cudnn", "efficient", "math", "eager", "unfused"),
    "experts": ("loop", "grouped"),
    "glu": ("eager", "torch", "fused", "recomputed", "packed"),
    "lengths": ("fixed", "variable"),
    "loss": KINDS,
    "norm": ("eager", "native", "fused"),
    "qkv": ("separate", "views", "copies"),
    "rope": ("eager", "fused"),
    "sharding": ("none", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2", "distributed_optimizer"),
    "saves": ("", *SAVES),
    "stage_cut": ("even", "balanced", "balanced_ends"),
    "whole_accumulation": ("none", "trained", "units"),
    "update": ("fused", "foreach", "loop", "in_backward"),
}
LEAST = {"sub_group": 1, "quant_block": 1, "pad_vocab_to": 1, "expert_tp": 1, "sequences": 1, "eval_kept": 1, "live_gathers": 1,
         "eval_batch": 0, "microbatch_group": 0, "bucket_elements": 0, "workspaces": 0, "frozen_copies": 0, "trained_copies": 0,
         "live_elements": 0, "imbalance": 1, "hidden_dropout": 0, "attention_dropout": 0, "tenant": 0, "images": 0,
         "image_patches": 0}  # fmt: skip
SHARES = ("hidden_dropout", "attention_dropout", "tenant")  # below one
OFFLOADS = ("optimizer", "parameters", "activations", "gradients")


def check_words(recipe: Recipe) -> None:
    """Raises QuestionError for the first part whose word means nothing, with the nearest words that do."""
    for part, known in WORDS.items():
        if getattr(recipe, part) not in known:
            raise unknown_name(part, getattr(recipe, part), (k for k in known if k))
    for part, least in LEAST.items():
        if getattr(recipe, part) < least:
            raise QuestionError(f"{part} is {getattr(recipe, part)}: expected at least {least}")
    for part in SHARES:
        if getattr(recipe, part) >= 1:
            raise QuestionError(f"{part} is {getattr(recipe, part)}: expected a share below 1")
    for part in recipe.offload:
        if part not in OFFLOADS:
            raise unknown_name("offload", part, OFFLOADS)
    _check_policy(recipe.checkpointing)


def _check_policy(given: str) -> None:
    policy, _, detail = given.partition(":")
    if policy not in POLICIES:
        raise unknown_name("checkpointing", given, POLICIES)
    if policy in COUNTED and not (detail.isdigit() and int(detail)):
        raise QuestionError(f"checkpointing {given!r} names no number of layers: write {policy}:2")
    for module in detail.split("+") if policy == "modules" else ():
        if module not in MODULES:
            raise unknown_name("recomputed module", module, MODULES)
