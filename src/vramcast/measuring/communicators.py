"""What NCCL holds per communicator: the card's free memory before and after the first, and a further one, over every card."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from vramcast.children import environment
from vramcast.measuring.process import launcher

_LONGEST_S = 120


def measure_communicators(cards: int) -> tuple[int, int] | None:
    """Bytes on the first card of the first communicator over so many cards, and of a further one; None with one card.

    None too when the cards do not come together: the other facts are worth having without it.
    """
    if cards < 2:
        return None
    with tempfile.TemporaryDirectory(prefix="vramcast-measure-") as folder:
        result = Path(folder, "result")
        command = [*launcher(cards), "-m", __name__, str(result)]
        try:
            subprocess.run(command, capture_output=True, timeout=_LONGEST_S, check=True, env=environment())
        except (subprocess.SubprocessError, OSError):
            return None
        first, further = json.loads(result.read_bytes())
        return int(first), int(further)


def main(result: str) -> None:
    """Under torchrun: make two communicators over every rank; the first rank writes what each took."""
    import torch

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    taken = taken_by_each(torch, torch.zeros(1, device="cuda"))
    if rank == 0:
        Path(result).write_text(json.dumps(taken))
    torch.distributed.destroy_process_group()


def taken_by_each(torch: Any, tensor: Any) -> list[int]:
    """Bytes that the card's free memory falls by with the first communicator's first reduction, and with a second's."""
    distributed = torch.distributed
    distributed.init_process_group("nccl")
    free = [_free(torch)]
    for group in (distributed.group.WORLD, distributed.new_group(backend="nccl")):
        distributed.all_reduce(tensor, group=group)
        free.append(_free(torch))
    return [free[0] - free[1], free[1] - free[2]]


def _free(torch: Any) -> int:
    torch.cuda.synchronize()
    return int(torch.cuda.mem_get_info()[0])


if __name__ == "__main__":
    main(sys.argv[1])
