"""How engines cut the layers of a model into pipeline stages: layers and stages to the number of layers of each."""


def even_split(layers: int, pp: int) -> tuple[int, ...]:
    """Layers per stage, the remainder given to the last stage."""
    return (layers // pp,) * (pp - 1) + (layers // pp + layers % pp,)


def middle_split(layers: int, pp: int) -> tuple[int, ...]:
    """Layers per stage, the remainder given one each from the last stage but one backwards.

    Source: vllm/distributed/utils.py get_pp_indices (since 0.7): the last stage also holds the norm and the head.
    """
    short = (*((0,) * (pp - 1 - layers % pp)), *((1,) * (layers % pp)), 0)
    return tuple(layers // pp + extra for extra in short)


def front_split(layers: int, pp: int) -> tuple[int, ...]:
    """Layers per stage, the remainder given one each to the first stages (accelerate and TensorRT-LLM)."""
    return tuple(layers // pp + (index < layers % pp) for index in range(pp))
