"""A decoder written from scratch, as in a course: weights in fp32, attention by einsum and softmax, an AdamW of its own.

    vramcast trace -- python course_model.py --context 512 --autocast [--inference]

Its operations, and so its allocations, are those of https://github.com/Wedsonlin/assignment2-systems (cs336_basics), whose
memory snapshots were recorded on a GPU: d_model 1,024, d_ff 4,096, 24 layers, 16 heads, vocabulary 10,000, batch 4.
"""

import argparse
import contextlib
import math

import torch
from torch import Tensor, nn

WIDTH, INNER, LAYERS, HEADS, VOCABULARY, BATCH = 1024, 4096, 24, 16, 10_000, 4
STEPS = 3


class Linear(nn.Module):
    """A matrix without bias, applied by einsum."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        return torch.einsum("...i,oi->...o", x, self.weight)


class Norm(nn.Module):
    """RMSNorm in fp32, given back in the type of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to the same."""
        given = x.dtype
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return (self.weight * x).to(given)


class Attention(nn.Module):
    """Every score written out, masked and normalised."""

    def __init__(self, angles: nn.Module) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (Linear(WIDTH, WIDTH) for _ in range(4))
        self.angles = angles

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        length = x.shape[1]
        query, key, value = self.query(x), self.key(x), self.value(x)
        query, key, value = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (query, key, value))
        query, key = self.angles(query), self.angles(key)
        places = torch.arange(length, device=x.device)
        mask = (places[:, None] >= places[None, :])[None]
        heads = attend(query, key, value, mask)
        joined = heads.transpose(1, 2).flatten(2).contiguous()
        return self.output(joined)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """softmax(QK)V with the scores of every pair."""
    scores = torch.einsum("...qd,...kd->...qk", query, key) / math.sqrt(key.shape[-1])
    scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, value)


def softmax(x: Tensor) -> Tensor:
    """Three passes: shifted, exponentiated, divided."""
    shifted = x - torch.max(x, dim=-1, keepdim=True)[0]
    grown = torch.exp(shifted)
    return grown / torch.sum(grown, dim=-1, keepdim=True)


class Angles(nn.Module):
    """Rotary positions: neighbouring pairs turned, halves joined."""

    def __init__(self, context: int) -> None:
        super().__init__()
        turns = torch.outer(torch.arange(context), 10_000.0 ** -(torch.arange(0, WIDTH // HEADS, 2) / (WIDTH // HEADS)))
        self.register_buffer("table", torch.stack((turns.cos(), turns.sin())), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., length, head width) to the same."""
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        cosine, sine = self.table[:, : x.shape[-2], :].unbind(0)
        turned_even = cosine * even - sine * odd
        turned_odd = sine * even + cosine * odd
        return torch.concat((turned_even, turned_odd), dim=-1)


class FeedForward(nn.Module):
    """SwiGLU with its sigmoid written out."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.down, self.up = Linear(WIDTH, INNER), Linear(INNER, WIDTH), Linear(WIDTH, INNER)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to the same."""
        return self.down(swish(self.gate(x)) * self.up(x))


def swish(x: Tensor) -> Tensor:
    """The input times its sigmoid."""
    return x * torch.sigmoid(x)


class Block(nn.Module):
    """Attention and feed-forward, each normed before and added after."""

    def __init__(self, angles: nn.Module) -> None:
        super().__init__()
        self.attention, self.feed = Attention(angles), FeedForward()
        self.first, self.second = Norm(), Norm()

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        mixed = self.attention(self.first(x))
        between = x + mixed
        fed = self.feed(self.second(between))
        return between + fed


class Decoder(nn.Module):
    """Embedding, blocks, norm and head; nothing is tied."""

    def __init__(self, context: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(VOCABULARY, WIDTH))
        angles = Angles(context)
        self.blocks = nn.ModuleList(Block(angles) for _ in range(LAYERS))
        self.last = Norm()
        self.head = Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) to logits (batch, length, vocabulary)."""
        x = embedded = self.embedding[tokens, :]
        for block in self.blocks:
            x = block(x)
        x = self.last(x)
        logits: Tensor = self.head(x)
        del embedded  # alive until here, as a name of the whole pass
        return logits


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over all tokens, through a log-softmax written out."""
    shifted = logits - torch.max(logits, dim=-1, keepdim=True)[0]
    logarithms = shifted - torch.log(torch.sum(torch.exp(shifted), dim=-1, keepdim=True))
    return torch.mean(torch.gather(-logarithms, -1, targets.unsqueeze(-1)))


class AdamW(torch.optim.Optimizer):
    """Moments made anew at every step, one parameter after the other."""

    def __init__(self, parameters) -> None:  # type: ignore[no-untyped-def]
        super().__init__(parameters, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "decay": 0.01})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict) -> None:  # type: ignore[type-arg]
        state, (first, second) = self.state[parameter], group["betas"]
        mean, square = state.get("m"), state.get("v")
        mean = torch.zeros_like(parameter) if mean is None else mean
        square = torch.zeros_like(parameter) if square is None else square
        parameter.data -= group["lr"] * group["decay"] * parameter.data
        mean = first * mean + (1 - first) * parameter.grad
        square = second * square + (1 - second) * torch.square(parameter.grad)
        parameter.data -= group["lr"] * mean / (torch.sqrt(square) + group["eps"])
        state["m"], state["v"] = mean, square


def main() -> None:
    """Train or infer for a few steps on random tokens."""
    given = argparse.ArgumentParser()
    given.add_argument("--context", type=int, default=128)
    given.add_argument("--autocast", action="store_true")
    given.add_argument("--inference", action="store_true")
    asked = given.parse_args()
    model = Decoder(asked.context).to("cuda")
    optimizer = AdamW(model.parameters())
    for _ in range(STEPS):
        tokens, targets = (torch.zeros(BATCH, asked.context, dtype=torch.long, device="cuda") for _ in range(2))
        if asked.inference:
            infer(model, tokens, autocast=asked.autocast)
        else:
            train(model, optimizer, tokens, targets, autocast=asked.autocast)


def infer(model: nn.Module, tokens: Tensor, *, autocast: bool) -> None:
    """One forward pass whose logits nobody keeps."""
    with torch.inference_mode(), casting(autocast):
        model(tokens)


def train(model: nn.Module, optimizer: AdamW, tokens: Tensor, targets: Tensor, *, autocast: bool) -> None:
    """One step."""
    optimizer.zero_grad()
    with casting(autocast):
        logits = model(tokens)
        loss = cross_entropy(logits, targets)
    loss.backward()
    optimizer.step()


def casting(wanted: bool) -> contextlib.AbstractContextManager[object]:
    """Half precision where it is asked for."""
    return torch.autocast("cuda", torch.float16) if wanted else contextlib.nullcontext()


if __name__ == "__main__":
    main()
