import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.errors import QuestionError
from vramcast.reading.environment_reports import read_environment
from vramcast.units import MiB

TABLE = """
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.154.05             Driver Version: 535.154.05   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
|=========================================+======================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |                    0 |
| N/A   35C    P0              68W / 400W |  12345MiB / 81920MiB |      0%      Default |
|                                         |                      |             Disabled |
+-----------------------------------------+----------------------+----------------------+
|   1  NVIDIA L40S                    Off | 00000000:0A:00.0 Off |                    2 |
| N/A   33C    P8              31W / 350W |      4MiB / 46068MiB |      0%      Default |
|                                         |                      |              Enabled |
+-----------------------------------------+----------------------+----------------------+
| Processes:                                                                            |
|    0   N/A  N/A      1234      C   python                                    12330MiB |
+---------------------------------------------------------------------------------------+
"""
DETAILS = """
==============NVSMI LOG==============
Driver Version                            : 535.154.05
CUDA Version                              : 12.2
Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA GeForce RTX 4090
    PCI
        GPU Link Info
            Link Width
                Max                       : 16x
                Current                   : 8x
    MIG Mode
        Current                           : N/A
    ECC Mode
        Current                           : Disabled
    FB Memory Usage
        Total                             : 24564 MiB
        Used                              : 420 MiB
    GPU Power Readings
        Current Power Limit               : 400.00 W
        Default Power Limit               : 450.00 W
    Temperature
        GPU Current Temp                  : 41 C
"""
QUERIED = "name, memory.total [MiB], memory.used [MiB], driver_version\nNVIDIA H100 80GB HBM3, 81559 MiB, 5 MiB, 550.54.15\n"
DS_REPORT = """
--------------------------------------------------
DeepSpeed C++/CUDA extension op report
--------------------------------------------------
op name ................ installed .. compatible
--------------------------------------------------
async_io ............... [NO] ....... [NO]
fused_adam ............. [NO] ....... [OKAY]
cpu_adam ............... [YES] ...... [OKAY]
--------------------------------------------------
DeepSpeed general environment info:
torch install path ............... ['/usr/lib/python3/torch']
torch version .................... 2.1.2
deepspeed info ................... 0.13.1, unknown, unknown
torch cuda version ............... 12.1
torch hip version ................ None
nvcc version ..................... 11.8
shared memory (/dev/shm) size .... 64.00 MB
"""
COLLECTED = """
PyTorch version: 2.6.0+cu124
CUDA used to build PyTorch: 12.4
Python version: 3.11.9 | packaged by conda-forge (64-bit runtime)
CUDA runtime version: 12.4.131
GPU models and configuration:
GPU 0: NVIDIA H100 80GB HBM3
GPU 1: NVIDIA H100 80GB HBM3

Nvidia driver version: 550.54.15
[pip3] numpy==1.26.4
[pip3] nvidia-nccl-cu12==2.21.5
[pip3] torch==2.6.0
[pip3] triton==3.2.0
[conda] transformers 4.51.0 pypi_0 pypi
GPU Topology:
\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\t0-31\t0
GPU1\tNV18\t X \t0-31\t0
"""


def test_the_table_of_nvidia_smi() -> None:
    got = read_environment(TABLE)
    assert (got.driver, got.driver_cuda, got.told_by) == ("535.154.05", "12.2", ("nvidia-smi",))
    first, second = got.cards
    assert (first.name, first.used_bytes, first.total_bytes) == ("NVIDIA A100-SXM4-80GB", 12345 * MiB, 81920 * MiB)
    assert (first.capability, first.ecc, first.mig, first.power_limit_w) == ((8, 0), True, False, 400.0)
    assert [(h.pid, h.name, h.bytes) for h in first.holders] == [(1234, "python", 12330 * MiB)]
    assert (second.uncorrected_errors, second.mig, second.holders) == (2, True, ())


def test_the_details_of_nvidia_smi() -> None:
    (card,) = read_environment(DETAILS).cards
    assert (card.name, card.capability, card.total_bytes) == ("NVIDIA GeForce RTX 4090", (8, 9), 24564 * MiB)
    assert (card.pcie_width, card.pcie_width_highest, card.ecc, card.mig) == (8, 16, False, None)
    assert (card.power_limit_w, card.power_default_w, card.temperature_c) == (400.0, 450.0, 41.0)


def test_a_query_with_its_header() -> None:
    got = read_environment(QUERIED)
    assert (got.driver, got.cards[0].name, got.cards[0].used_bytes) == ("550.54.15", "NVIDIA H100 80GB HBM3", 5 * MiB)


def test_deepspeeds_report() -> None:
    got = read_environment(DS_REPORT)
    assert got.operators == {"async_io": (False, False), "fused_adam": (False, True), "cpu_adam": (True, True)}
    assert (got.packages, got.torch_cuda, got.nvcc) == ({"torch": "2.1.2", "deepspeed": "0.13.1"}, "12.1", "11.8")
    assert got.shared_memory_bytes == 64 * MiB


def test_pytorchs_report_with_vllms_topology() -> None:
    got = read_environment(COLLECTED)
    assert got.packages == {"torch": "2.6.0+cu124", "triton": "3.2.0", "transformers": "4.51.0"}
    assert (got.torch_cuda, got.nccl, got.driver, got.nvcc, got.python) == ("12.4", "2.21.5", "550.54.15", "12.4", "3.11.9")
    assert [card.capability for card in got.cards] == [(9, 0), (9, 0)]
    assert "NV18" in got.topology


def test_several_reports_in_one_text_are_one_state() -> None:
    got = read_environment(f"{TABLE}\n$ ds_report\n{DS_REPORT}")
    assert got.told_by == ("ds_report", "nvidia-smi")
    assert len(got.cards) == 2 and got.packages["deepspeed"] == "0.13.1"


@pytest.mark.parametrize("text", ["", "hello", "PyTorch is nice", "0" * 1000])
def test_text_without_a_report_is_refused(text: str) -> None:
    with pytest.raises(QuestionError, match="no report is known in this text"):
        read_environment(text)


@given(st.integers(0, 2000), st.integers(0, 2000), st.sampled_from([TABLE, DETAILS, QUERIED, DS_REPORT, COLLECTED]))
def test_cut_reports_are_survived(start: int, end: int, text: str) -> None:
    try:
        read_environment(text[start:] + text[:end])
    except QuestionError:
        return
