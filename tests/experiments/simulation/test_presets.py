"""Latency models from datasheets: the arithmetic by hand once, and the shape that a roofline has."""

import pytest

from experiments.simulation import presets
from experiments.simulation.presets import H100, QWEN3_14B, roofline


def test_weights_are_those_of_the_model_cards():
    counts = {
        presets.QWEN3_14B: 14.8e9,
        presets.QWEN3_1_7B: 1.7e9,
        presets.QWEN3_0_6B: 0.6e9,
        presets.LLAMA_70B_INT4: 70.6e9,
        presets.LLAMA_3B: 3.21e9,
        presets.LLAMA_1B: 1.24e9,
    }
    for model, count in counts.items():
        tables = model.table_weights * (1 if model.tied else 2)
        assert model.layer_weights + tables == pytest.approx(count, rel=0.02)
    assert QWEN3_14B.layer_weights == pytest.approx(13.2e9, rel=0.01)  # "non-embedding"
    assert QWEN3_14B.kv_bytes == 160 * 1024
    assert presets.LLAMA_70B_INT4.kv_bytes == 320 * 1024


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
