"""Where execution stands: the module path, the phase of the step, the line of the user's code.

Modules are followed by global forward hooks. In the backward pass the C++ engine calls no module, so the forward notes which
module made each autograd sequence number, and the backward reads the number of the node that runs. A module called while a node
runs is being recomputed (activation checkpointing).
"""

import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

_LIBRARIES = (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["stdlib"], str(Path(__file__).parent))

_WRAPPERS = frozenset({"module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})  # DDP, FSDP1, compile


class Places:
    """The present module path and phase; ``on_module`` and ``on_step`` let others follow along.

    ``forward``: what a forward pass is called at present (prefill and decode in generation).
    """

    def __init__(self, *, lines: bool = False) -> None:
        self.stack: list[str] = []
        self.phase = "setup"
        self.forward = "forward"
        self._backward = False
        self.on_module: list[Callable[[torch.nn.Module], None]] = []
        self.on_step: list[Callable[[torch.optim.Optimizer], None]] = []
        self.on_stage: Callable[[str], None] = lambda _: None
        self.before_step: Callable[[], None] = lambda: None
        self.generating = False
        self.stepped = False
        self._names: dict[int, str] = {}
        self._by_sequence: dict[int, str] = {}
        self._known: set[int] = set()
        self._handles: list[Any] = []
        self._lines = lines
        self._foreign: dict[str, bool] = {}

    def restart(self) -> None:
        """Forget the modules of the last run."""
        self.phase, self.forward, self._backward, self.stepped = "setup", "forward", False, False
        for known in (self.stack, self._names, self._by_sequence, self._known):
            known.clear()

    def watch(self) -> None:
        """Install the hooks."""
        self._handles = [
            modules.register_module_forward_pre_hook(self._enter),
            modules.register_module_forward_hook(self._leave, always_call=True),
            optimizers.register_optimizer_step_pre_hook(self._before_step),
            optimizers.register_optimizer_step_post_hook(self._after_step),
        ]

    def unwatch(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def name_modules(self, root: torch.nn.Module, *, within: str = "") -> None:
        """Give the modules below a root their paths; ``within``: the module that called one nobody knew (a parametrisation)."""
        for name, module in root.named_modules():
            path = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
            self._names[id(module)] = ".".join(filter(None, (within, path or type(module).__name__)))

    def know(self, root: torch.nn.Module) -> None:
        """Name what has no name in a model whose tensors are labelled already: what FSDP puts there later is not its own."""
        named = dict(self._names)
        self.name_modules(root)
        self._names.update(named)
        self._known.update(id(module) for module in root.modules())

    def name_of(self, module: torch.nn.Module) -> str:
        """The path of a module, "" before it is known."""
        return self._names.get(id(module), "")

    def here(self) -> tuple[str, str]:
        """Module path and phase of what is executing."""
        node = torch._C._current_autograd_node()
        self._backward = self._backward or node is not None
        if node is not None:
            module = self.stack[-1] if self.stack else self._by_sequence.get(node._sequence_nr(), "")
            return module, "recompute" if self.stack or torch.is_grad_enabled() else "backward"
        if self.phase == "forward" and torch._C._current_graph_task_id() >= 0:  # what FSDP does after the last node
            return "", "backward"
        after = self._backward and not self.stack and self.phase == "forward"
        return (self.stack[-1] if self.stack else ""), "after backward" if after else self.phase

    def note_sequence(self) -> None:
        """After a forward operator: remember which module made the newest autograd node."""
        self._by_sequence[torch.autograd._get_sequence_nr() - 1] = self.stack[-1] if self.stack else ""

    def line(self) -> str:
        """``file:line`` of the innermost frame that belongs to no library, when lines are asked for."""
        if not self._lines:
            return ""
        frame: Any = sys._getframe(2)
        while frame is not None:
            filename = frame.f_code.co_filename
            if not self._is_foreign(filename):
                return f"{filename}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _is_foreign(self, filename: str) -> bool:
        known = self._foreign.get(filename)
        if known is None:
            known = self._foreign[filename] = is_library(filename)
        return known

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        identity = id(module)
        if identity not in self._names:
            self.name_modules(module, within=self.stack[-1] if self.stack else "")
        if identity not in self._known:
            self._known.add(identity)
            for follow in self.on_module:
                follow(module)
        if torch._C._current_autograd_node() is None:
            self.phase, self._backward = self.forward, False
            if not self.stack:
                self.on_stage(self._stage())
        self.stack.append(self._names[identity])

    def _leave(self, *_: Any) -> None:
        if self.stack:
            self.stack.pop()

    def _stage(self) -> str:
        """Which stage of a job's life an outermost forward pass belongs to."""
        if not torch.is_grad_enabled():
            return "generation" if self.generating else "forward without gradients"
        return "later steps" if self.stepped else "first step"

    def _before_step(self, *_: Any) -> None:
        self.before_step()
        self.phase = "optimizer"

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.phase, self.stepped = "between steps", True
        for follow in self.on_step:
            follow(optimizer)


def is_library(filename: str) -> bool:
    """True for code that is installed, part of Python or made at run time: not the user's own."""
    return filename.startswith(("<", *_LIBRARIES)) or "site-packages" in filename
