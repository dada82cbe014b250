"""A collective over machines needs what joins them, and ranks that spread over them evenly."""

import pytest

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import catalogue
from vramcast.speed.kernels.collectives import Fabric, all_gather

H100 = catalogue()["h100-sxm5-80"]
FABRIC = Fabric(rail_bytes_per_s=50e9, rails=8)


def test_two_machines_need_a_fabric_and_one_does_not() -> None:
    with pytest.raises(QuestionError, match="2 nodes need a fabric"):
        all_gather(card=H100, world=16, size_bytes=2**30, nodes=2)
    alone = all_gather(card=H100, world=8, size_bytes=2**30)
    assert "network" not in alone.parts
    assert all_gather(card=H100, world=16, size_bytes=2**30, nodes=2, fabric=FABRIC).parts["network"] > 0


@pytest.mark.parametrize(("world", "nodes"), [(0, 1), (8, 0), (12, 5)])
def test_ranks_that_do_not_spread_evenly_are_refused(world: int, nodes: int) -> None:
    with pytest.raises(QuestionError, match=f"{world} ranks do not spread over {nodes} nodes evenly"):
        all_gather(card=H100, world=world, size_bytes=2**30, nodes=nodes, fabric=FABRIC)


def test_a_rank_alone_sends_nothing() -> None:
    found = all_gather(card=H100, world=1, size_bytes=2**30)
    assert found.parts["link"] <= all_gather(card=H100, world=2, size_bytes=2**30).parts["link"] / 10
