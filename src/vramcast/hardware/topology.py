"""How the cards of one machine are joined to each other and to network cards, read from the matrix that vendors' tools print.

One reader serves ``nvidia-smi topo -m``, ``mx-smi topo``, ``npu-smi info -t topo`` and ``rocm-smi --showtopo``: rows that start
with GPUn or NPUn followed by one link token per card, then one per network card. Tokens: X (itself), NVn (n NVLinks),
PIX/PXB/PHB/NODE/SYS (ever longer ways over PCIe, as NVIDIA's legend defines them), XGMI, HCCS, MX. Rows of network cards
(NICn, mlx5_n) tell their links even where the header lost their columns.
"""

import re

import msgspec

from vramcast.errors import QuestionError

MOST_CHARACTERS = 200_000
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_CARD = re.compile(r"(?:GPU|NPU)([0-9]{1,4})")
_NIC = re.compile(r"(?:NIC|mlx[0-9]?_|bnxt_re|rocep|roce|hfi[0-9]?_|efa_|irdma)\w{0,40}", re.IGNORECASE)
_LINK = re.compile(r"X|NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS|SOC|XGMI|PCIE|HCCS|MX")
_DIRECT = re.compile(r"NV[0-9]{1,3}|XGMI|HCCS|MX")
_CPUS = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?){0,400}")
_AMD_NUMA = re.compile(r"GPU\[([0-9]{1,4})\]\s*:.*Numa Node:\s*([0-9]{1,4})", re.IGNORECASE)
_NAMED = re.compile(r"(NIC[0-9]{1,4})\s*:\s*([\w.-]{1,64})")
# Ever longer ways between two devices; what NVIDIA's legend says of each.
FARNESS = {"X": 0, "NV": 1, "XGMI": 1, "HCCS": 1, "MX": 1, "PIX": 2, "PXB": 3, "PCIE": 3, "PHB": 4, "NODE": 5, "SOC": 6, "SYS": 6}
LEGEND = {
    "NV": "NVLinks",
    "XGMI": "Infinity Fabric",
    "HCCS": "Huawei's cache-coherent links",
    "MX": "MetaX's links",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches, not the CPU",
    "PHB": "the CPU's PCIe host bridge",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between CPU sockets",
    "SOC": "the link between CPU sockets",
    "PCIE": "PCIe",
}
# One-way bytes/s of one NVLink by compute capability: NVLink 1 to 3 and 4 carry 20, 25, 25 and 25 GB/s, NVLink 5 50 GB/s.
# Source: NVIDIA architecture whitepapers; the RTX 3090's bridge reports 14.06 GB/s per link (nvidia-smi nvlink -s).
_NVLINK_GB_S = (((10, 0), 50.0), ((9, 0), 25.0), ((8, 6), 14.06), ((7, 0), 25.0), ((6, 0), 20.0))
# What one-way copies over PCIe were measured to reach, as a share of the slot's rate (56 of 63 GB/s on PCIe 5, 22 of 31.5 when
# the pair has no peer access and goes through host memory). Source: p2pBandwidthLatencyTest logs.
_PEER_SHARE, _HOST_SHARE = 0.89, 0.7


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """A network card and its way to each GPU; ``device``: the name that the legend gives it (mlx5_0), "" without."""

    name: str
    links: tuple[str, ...]
    device: str = ""


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """The link of every pair of cards; ``links[i][j]`` is a token.

    ``numa``: each card's NUMA node, "" when not told; ``cpus``: the CPUs near it, as printed.
    """

    links: tuple[tuple[str, ...], ...]
    numa: tuple[str, ...]
    cpus: tuple[str, ...] = ()
    nics: tuple[Nic, ...] = ()

    @property
    def cards(self) -> int:
        """How many cards the matrix describes."""
        return len(self.links)

    def islands(self) -> tuple[tuple[int, ...], ...]:
        """Groups of cards in which each card is joined to all others by direct links; tensor parallelism belongs inside one."""
        return self.groups(1)

    def groups(self, farthest: int) -> tuple[tuple[int, ...], ...]:
        """Groups of cards no two of which are farther apart than that (a value of FARNESS)."""
        groups: list[list[int]] = []
        for card in range(self.cards):
            home = next((g for g in groups if all(farness(self.links[card][j]) <= farthest for j in g)), None)
            if home is None:
                groups.append([card])
            else:
                home.append(card)
        return tuple(tuple(group) for group in groups)

    def pairs(self) -> dict[str, int]:
        """How many pairs of cards each link joins, nearest first."""
        count: dict[str, int] = {}
        for i in range(self.cards):
            for j in range(i):
                count[self.links[i][j]] = count.get(self.links[i][j], 0) + 1
        return dict(sorted(count.items(), key=lambda item: (farness(item[0]), item[0])))

    def bytes_per_s(self, first: int, second: int, *, capability: tuple[int, int], host_link_bytes_per_s: float) -> float:
        """One-way copy rate between two cards, bytes/s."""
        link = self.links[first][second]
        if link.startswith("NV"):
            return int(link[2:]) * next((rate for since, rate in _NVLINK_GB_S if capability >= since), 25.0) * 1e9
        return host_link_bytes_per_s * (_PEER_SHARE if link in {"PIX", "PXB"} else _HOST_SHARE)


def farness(link: str) -> int:
    """A token's place in FARNESS."""
    return FARNESS["NV" if link.startswith("NV") else link]


def is_direct(link: str) -> bool:
    """Whether the link joins two cards without PCIe."""
    return _DIRECT.fullmatch(link) is not None


def parse_topology(text: str) -> Topology:
    """The matrix in a pasted listing.

    Raises QuestionError when there is no square matrix of cards in it.
    """
    plain = _ANSI.sub("", text[:MOST_CHARACTERS])
    rows: dict[int, list[str]] = {}
    rest: dict[int, list[str]] = {}
    nics: dict[str, list[str]] = {}
    for line in plain.splitlines():
        words = line.split()
        if len(words) < 2 or _CARD.fullmatch(words[1]):
            continue
        if match := _CARD.fullmatch(words[0]):
            card = int(match[1])
            found = _leading_links(words[1:], card)
            if len(found) >= len(rows.get(card, [])):
                rows[card], rest[card] = found, words[1 + len(found) :]
        elif _NIC.fullmatch(words[0]) and (links := _leading_links(words[1:], -1)):
            nics[words[0]] = links
    count = len(rows)
    if not count or sorted(rows) != list(range(count)) or any(len(rows[i]) < count for i in rows):
        raise QuestionError("no matrix of cards found: paste the whole output of `nvidia-smi topo -m`, header included")
    return Topology(
        links=tuple(tuple(rows[i][:count]) for i in range(count)),
        numa=_numa_nodes(plain, rest, count),
        cpus=tuple(_cpus(rest[i]) for i in range(count)),
        nics=_nics(plain, rows, nics, count),
    )


def _leading_links(words: list[str], card: int) -> list[str]:
    """Link tokens up to the first word that is none; rocm-smi prints 0 where others print X."""
    links: list[str] = []
    for column, word in enumerate(words):
        if column == card and word == "0":
            links.append("X")
        elif _LINK.fullmatch(word):
            links.append(word)
        else:
            break
    return links


def _nics(text: str, rows: dict[int, list[str]], named: dict[str, list[str]], count: int) -> tuple[Nic, ...]:
    """Network cards by their rows, or by the columns that cards' rows have beyond the cards (their names are in the header)."""
    devices = dict(_NAMED.findall(text))
    if named:
        return tuple(
            Nic(name=name, links=tuple(links[:count]), device=devices.get(name, ""))
            for name, links in named.items()
            if len(links) >= count
        )
    columns = min(len(rows[i]) for i in rows) - count
    header = [w for line in text.splitlines()[:40] for w in line.split() if _NIC.fullmatch(w)]
    names = [header[i] if i < len(header) else f"NIC{i}" for i in range(columns)]
    return tuple(
        Nic(name=name, links=tuple(rows[i][count + n] for i in range(count)), device=devices.get(name, ""))
        for n, name in enumerate(names)
    )


def _numa_nodes(text: str, rest: dict[int, list[str]], count: int) -> tuple[str, ...]:
    """The NUMA node of each card: beside the list of CPUs, or in rocm-smi's own block."""
    amd = {int(card): node for card, node in _AMD_NUMA.findall(text)}
    return tuple(amd.get(i) or _numa(rest[i]) for i in range(count))


def _numa(words: list[str]) -> str:
    """The NUMA node among the affinity cells: a bare number beside the list of CPUs."""
    if len(words) >= 2 and words[1].isdigit():
        return words[1]
    return words[0] if len(words) >= 2 and words[0].isdigit() else ""


def _cpus(words: list[str]) -> str:
    """The list of CPUs among the affinity cells: the one with a range or a comma."""
    return next((w for w in words if _CPUS.fullmatch(w) and ("-" in w or "," in w)), "")
