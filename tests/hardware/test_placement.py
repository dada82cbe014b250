from vramcast.hardware.placement import suggest
from vramcast.hardware.topology import parse_topology


def matrix(rows: list[str]) -> str:
    header = "\t".join(f"GPU{i}" for i in range(len(rows)))
    return "\n".join([f"\t{header}\tCPU Affinity\tNUMA Affinity", *(f"GPU{i}\t{row}" for i, row in enumerate(rows))])


SWITCHED = matrix(["\t".join("X" if i == j else "NV18" for j in range(8)) + "\t0-9\t0" for i in range(8)])
BRIDGED = matrix(
    [
        "X\tNV12\tSYS\tSYS\t0-9\t0",
        "NV12\tX\tSYS\tSYS\t0-9\t0",
        "SYS\tSYS\tX\tNV12\t10-19\t1",
        "SYS\tSYS\tNV12\tX\t10-19\t1",
    ]
)
SOCKETS = matrix(["X\tSYS\t0-9\t0", "SYS\tX\t10-19\t1"])


def test_a_switched_machine_is_one_group_for_tensors_and_experts() -> None:
    found = suggest(parse_topology(SWITCHED))
    assert [(g.kind, g.size, len(g.groups)) for g in found.groups] == [("tensor parallel", 8, 1), ("expert parallel", 8, 1)]
    assert found.cautions == ()


def test_bridged_pairs_are_tensor_groups_and_stages_run_between_them() -> None:
    found = suggest(parse_topology(BRIDGED))
    assert [(g.kind, g.size) for g in found.groups] == [("tensor parallel", 2), ("pipeline or data parallel", 2)]
    assert found.groups[0].groups == ((0, 1), (2, 3))
    assert "several NUMA nodes" in found.cautions[0]


def test_cards_without_direct_links_are_warned_about() -> None:
    found = suggest(parse_topology(SOCKETS))
    assert found.groups[0].because == "each pair is joined by the link between sockets"
    assert "no direct links" in found.cautions[0]
    assert "crosses CPU sockets" in found.cautions[1]
    assert "several NUMA nodes" in found.cautions[2]
    assert not any("NUMA" in caution for caution in suggest(parse_topology(SWITCHED)).cautions)


def test_the_nearest_network_card_of_each_gpu() -> None:
    text = BRIDGED + "\nNIC0\tPIX\tPXB\tSYS\tSYS\tX\tSYS\nNIC1\tSYS\tSYS\tNODE\tPIX\tSYS\tX\n"
    found = suggest(parse_topology(text))
    assert found.nics == (("NIC0",), ("NIC0",), ("NIC1",), ("NIC1",))
    assert any(text.startswith("GPU 2: no network card behind the same PCIe switch") for text in found.cautions)


def test_one_card_has_no_group() -> None:
    found = suggest(parse_topology("\tGPU0\tCPU Affinity\nGPU0\tX\t0-9\n"))
    assert [(g.size, g.because) for g in found.groups] == [(1, "one card has no group")]
