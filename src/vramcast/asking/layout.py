"""How ranks share a training run: the words for it, and the layout that they make."""

from typing import TypedDict

from vramcast.errors import QuestionError
from vramcast.workload import Parallel


class LayoutWords(TypedDict, total=False):
    """Ranks along each axis of parallelism; None is one, except that ``replicate`` and ``shard`` follow from each other."""

    tp: int | None
    pp: int | None
    cp: int | None
    ep: int | None
    vpp: int | None
    sp: bool | None
    replicate: int | None
    shard: int | None
    hpz: int | None


def layout_of(words: LayoutWords, gpus: int) -> tuple[Parallel, int]:
    """The layout and the number of cards it is for: data parallelism is what the other axes leave.

    Raises QuestionError when they do not divide, or when replicas and shards do not multiply to the data-parallel ranks.
    """
    axes = {name: words.get(name) for name in ("tp", "pp", "cp", "ep", "vpp", "hpz")}
    given = {name: value for name, value in axes.items() if isinstance(value, int)}
    model = Parallel(**given, sp=bool(words.get("sp")))
    world = gpus if gpus > 1 else model.model_ranks
    if world % model.model_ranks:
        asked = f"tp {model.tp} x pp {model.pp} x cp {model.cp} = {model.model_ranks}"
        raise QuestionError(f"{world} cards do not divide into {asked}")
    data = world // model.model_ranks
    replicate = _replicas(words.get("replicate"), words.get("shard"), data)
    return Parallel(**given, sp=model.sp, dp=data, replicate=replicate), world


def _replicas(replicate: int | None, shard: int | None, data: int) -> int:
    """From ``replicate``, from ``shard``, or from both when they agree."""
    if shard is None:
        return 1 if replicate is None else replicate
    if shard < 1:
        raise QuestionError(f"shard is {shard}: expected at least 1")
    if data % shard or (replicate is not None and replicate * shard != data):
        asked = f"{replicate} replicas x {shard} shards" if replicate is not None else f"replicas of {shard} shards"
        fits = max(n for n in range(1, min(data, shard) + 1) if data % n == 0)
        raise QuestionError(f"{data} data-parallel ranks are not {asked}: use --replicate {data // fits} --shard {fits}")
    return data // shard
