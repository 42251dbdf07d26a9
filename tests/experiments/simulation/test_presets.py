"""Latency models from datasheets: the arithmetic by hand once."""

import pytest

from experiments.simulation import presets
from experiments.simulation.presets import H100, QWEN3_14B, roofline


def test_the_arithmetic_by_hand():
    """13.21e9 weights in the layers, 0.778e9 in the last matrix; 480 launches; 2.68 TB/s and 593.4 Tflop/s reached."""
    cost = roofline(QWEN3_14B, H100)
    launches = 0.0005 + 480 * 0.000002  # 1.46 ms
    reading = 2 * (13.212e9 + 0.7779e9) / 2.68e12  # 10.44 ms
    context = 2000 * 163_840 / 2.68e12  # 0.12 ms
    assert cost.round_s(28, 8, 2000) == pytest.approx(launches + reading + context, rel=1e-4)
    computing = 1000 * 2 * (13.212e9 + 0.7779e9) / 593.4e12  # 47.2 ms
    assert cost.round_s(1000, 8, 2000) == pytest.approx(launches + computing + context, rel=1e-4)
    awq = 68.451e9 * 4.15625 / 8 + 2 * 128_256 * 8192  # 37.66 GB of a checkpoint of 39.8 with its embedding table
    assert presets.LLAMA_70B_INT4.bytes_read == pytest.approx(awq, rel=1e-4)
