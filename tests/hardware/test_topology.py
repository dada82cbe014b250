"""Topology matrices as vendors' tools print them, cut, coloured and with network cards between."""

from pathlib import Path

import pytest

from vramcast.errors import QuestionError
from vramcast.hardware.topology import Topology, parse_topology

BRIDGED_PAIRS = """
\x1b[4m\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV12\tSYS\tSYS\tPIX\t0-15\t0
GPU1\tNV12\t X \tSYS\tSYS\tSYS\t16-31\t1
GPU2\tSYS\tSYS\t X \tNV12\tSYS\t32-47\t2
GPU3\tSYS\tSYS\tNV12\t X \tSYS\t48-63\t3
NIC0\tPIX\tSYS\tSYS\tSYS\t X
"""
ROCM = """
====== Weight between two GPUs ======
       GPU0         GPU1
GPU0   0            15
GPU1   15           0
====== Link Type between two GPUs ======
       GPU0         GPU1
GPU0   0            XGMI
GPU1   XGMI         0
"""


def test_pairs_joined_by_bridges() -> None:
    topology = parse_topology(BRIDGED_PAIRS)
    assert topology.islands() == ((0, 1), (2, 3))
    assert topology.numa == ("0", "1", "2", "3")
    assert topology.links[0] == ("X", "NV12", "SYS", "SYS")


def test_rates_of_links() -> None:
    topology = parse_topology(BRIDGED_PAIRS)
    a100 = {"capability": (8, 0), "host_link_bytes_per_s": 31.5e9}
    assert topology.bytes_per_s(0, 1, **a100) == pytest.approx(275e9, rel=0.1)  # measured 274 to 275.5 GB/s
    assert topology.bytes_per_s(0, 2, **a100) == pytest.approx(21.6e9, rel=0.05)  # measured 21.5 to 21.7 GB/s


@pytest.mark.parametrize(
    ("capability", "links", "gb_s"),
    [
        ((6, 0), 4, 80),  # NVIDIA Tesla P100 whitepaper: four links, 160 GB/s both ways
        ((7, 0), 6, 150),  # V100: six, 300 GB/s
        ((8, 0), 12, 300),  # A100: twelve, 600 GB/s
        ((8, 6), 4, 56.24),  # RTX 3090: nvidia-smi nvlink -s prints 14.062 GB/s a link
        ((9, 0), 18, 450),  # H100: eighteen, 900 GB/s
        ((10, 0), 18, 900),  # B200: eighteen of NVLink 5, 1.8 TB/s
    ],
)
def test_one_way_rates_of_nvlink_by_generation(capability: tuple[int, int], links: int, gb_s: float) -> None:
    pair = Topology(links=(("X", f"NV{links}"), (f"NV{links}", "X")), numa=("", ""), cpus=("", ""), nics=())
    rate = pair.bytes_per_s(0, 1, capability=capability, host_link_bytes_per_s=31.5e9)
    assert rate == pytest.approx(gb_s * 1e9, rel=1e-3)


def test_rocm_listing_takes_the_block_of_link_types() -> None:
    topology = parse_topology(ROCM)
    assert topology.links == (("X", "XGMI"), ("XGMI", "X"))
    assert topology.islands() == ((0, 1),)


def test_cut_listings_are_refused() -> None:
    with pytest.raises(QuestionError, match=r"no matrix of cards found: paste the whole output of `nvidia-smi topo -m`"):
        parse_topology("GPU0 X NV1\nGPU3 NV1 X")


@pytest.mark.shared
def test_every_public_listing_is_read(shared: Path) -> None:
    files = sorted((shared / "hardware" / "topology").glob("*.txt"))
    assert len(files) >= 27
    for file in files:
        topology = parse_topology(file.read_text())
        assert all(topology.links[i][i] == "X" for i in range(topology.cards)), file.name
        assert all(topology.links[i][j] == topology.links[j][i] for i in range(topology.cards) for j in range(i)), file.name


# Facts of public listings: cards, islands, pairs by link, network cards by name and the way of the first to each card.
SHAPES = {
    "a100x8_nv12_10nics_tabs.txt": (8, ((0, 1, 2, 3, 4, 5, 6, 7),), {"NV12": 28}, 10),
    "a800x8_damaged_columns.txt": (8, ((0, 1, 2, 3, 4, 5, 6, 7),), {"NV8": 28}, 4),
    "a800x8_nv8_nics.txt": (8, ((0, 1, 2, 3, 4, 5, 6, 7),), {"NV8": 28}, 4),
    "amd8_rocm_smi_showtopo.txt": (8, ((0, 1, 2, 3, 4, 5, 6, 7),), {"XGMI": 28}, 0),
    "ascend8_npu_smi.txt": (8, ((0, 1, 2, 3, 4, 5, 6, 7),), {"HCCS": 28}, 0),
    "b300x8_nv18_9nics_ansi.txt": (8, ((0, 1, 2, 3, 4, 5, 6, 7),), {"NV18": 28}, 9),
    "h100_1gpu_6nics.txt": (1, ((0,),), {}, 6),
    "metax8_mx_smi.txt": (8, ((0, 1, 2, 3), (4, 5, 6, 7)), {"MX": 12, "NODE": 16}, 0),
    "v100x8_hybrid_mesh.txt": (8, ((0, 1, 2, 3), (4, 5, 6, 7)), {"NV1": 8, "NV2": 8, "NODE": 12}, 0),
    "x2_sys_phb_4roce.txt": (2, ((0,), (1,)), {"SYS": 1}, 4),
    "x4_node_sys_named_nic.txt": (4, ((0,), (1,), (2,), (3,)), {"NODE": 2, "SYS": 4}, 1),
    "rtx4090d_x2_node_2nics.txt": (2, ((0,), (1,)), {"NODE": 1}, 2),
}


@pytest.mark.shared
@pytest.mark.parametrize("file", SHAPES)
def test_cards_links_and_network_cards_of_public_listings(file: str, shared: Path) -> None:
    topology = parse_topology((shared / "hardware" / "topology" / file).read_text())
    cards, islands, pairs, nics = SHAPES[file]
    assert (topology.cards, topology.islands(), topology.pairs(), len(topology.nics)) == (cards, islands, pairs, nics)
    assert all(len(nic.links) == cards for nic in topology.nics)


def test_network_cards_are_read_from_rows_or_from_columns() -> None:
    (nic,) = parse_topology(BRIDGED_PAIRS).nics
    assert (nic.name, nic.links) == ("NIC0", ("PIX", "SYS", "SYS", "SYS"))
    without_rows = "\n".join(line for line in BRIDGED_PAIRS.splitlines() if not line.startswith("NIC0"))
    assert parse_topology(without_rows).nics == (nic,)
    named = parse_topology(BRIDGED_PAIRS + "\nNIC Legend:\n\n  NIC0: mlx5_2\n")
    assert named.nics[0].device == "mlx5_2"


def test_affinity_and_numa_of_both_vendors() -> None:
    assert parse_topology(BRIDGED_PAIRS).cpus == ("0-15", "16-31", "32-47", "48-63")
    numa = "GPU[0]\t\t: (Topology) Numa Node: 0\nGPU[1]\t\t: (Topology) Numa Node: 1\n"
    assert parse_topology(ROCM + numa).numa == ("0", "1")
