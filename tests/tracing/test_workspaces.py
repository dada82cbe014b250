"""Kernel workspaces: the staging buffer of a split reduction, against recorded allocations."""

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("rows", "columns", "recorded"),
    [
        (4 * 1024, 1024, 33_554_432),  # 24-layer model of width 1024, batch 4, context 1024: seen 98 times in its snapshot
        (4 * 512, 1024, 16_777_216),
        (4 * 128, 1024, 0),
    ],
)
def test_the_staging_buffer_of_a_norm_gradient(rows: int, columns: int, recorded: int) -> None:
    from vramcast.tracing.execution.kernels.workspaces import staging_bytes
    from vramcast.tracing.policies import DeviceModel

    assert staging_bytes(columns, rows, DeviceModel(capability=(9, 0), multiprocessors=132)) == recorded


def test_the_backward_of_a_softmax_copies_what_is_not_contiguous() -> None:
    import torch

    from vramcast.tracing.execution.kernels.workspaces import rules
    from vramcast.tracing.policies import DeviceModel

    rule = rules()[torch.ops.aten._log_softmax_backward_data.default]
    gradient, output = torch.empty(4, 8, 16, device="meta"), torch.empty(4, 8, 16, device="meta")
    assert rule((gradient, output, -1, torch.float32), output, DeviceModel()) == []
    turned = torch.empty(8, 4, 16, device="meta").transpose(0, 1)
    assert rule((turned, output, -1, torch.float32), output, DeviceModel()) == [4 * 8 * 16 * 4]
