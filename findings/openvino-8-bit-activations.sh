#!/usr/bin/env bash
# OpenVINO takes the setting for 8-bit activations on CPUs that have no products of 8-bit numbers, reports it as set, and
# computes with float32 activations; and there a lone row has other bits than the same row beside another.
#
# Library:  openvino 2026.4.1, with numpy 2.3.5.
# Needs:    Linux on an x86 CPU with AVX2 and without VNNI and AMX (AMD Zen 3; most CPUs for servers have VNNI), Python 3.11 or
#           3.12, 300 MB of disk, half a minute. On another CPU it says so and ends with 2.
# Asked:    a product of 4 rows with a matrix of 576 x 1536 weights in 8 bits, with a scale for 32 of them, compiled with
#           DYNAMIC_QUANTIZATION_GROUP_SIZE 32 and 0 (no 8-bit activations); then of each row alone.
# Seen:     get_property returns 32; both give the same bits. Rows computed alone differ in their last bits (1e-6 of the
#           largest), pairs of rows do not.
# Meaning:  what a setting says is not what is computed: who tells users a precision, or expects a speed, must look at the CPU
#           (goodspeed/engine/openvino/loading.py). Whoever promises equal bits in any batch must compute two rows at least.
# Exit:     0 if that is what the library does, 1 if it does something else, 2 on another kind of CPU.
# Run once: November 30, 2026.
set -euo pipefail

if grep -qE '(vnni|amx_int8)' /proc/cpuinfo || ! grep -q avx2 /proc/cpuinfo; then
  echo "this CPU is of another kind: it has VNNI or AMX, or no AVX2" >&2
  exit 2
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openvino==2026.4.1 numpy==2.3.5
cd "$folder"
HOME="$folder" "$folder/venv/bin/python" - <<'PYTHON'
import sys

sys.modules["openvino_telemetry"] = None  # else the import tells Google Analytics
import numpy as np
import openvino as ov
from openvino import opset13 as ops

random = np.random.default_rng(1)
numbers = random.integers(-127, 128, (1536, 18, 32)).astype(np.int8)
scales = random.uniform(0.001, 0.01, (1536, 18, 1)).astype(np.float32)
rows = ops.parameter([-1, 1, 576], np.float32)
weight = ops.multiply(ops.convert(ops.constant(numbers), "f32"), ops.constant(scales))
product = ops.matmul(rows, ops.reshape(weight, [1536, 576], False), False, True)
model = ov.Model([product], [rows])


def compiled(group):
    settings = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": group, "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    return ov.Core().compile_model(model, "CPU", settings)


given = random.standard_normal((4, 1, 576)).astype(np.float32)
in_8_bits, in_float32 = compiled("32"), compiled("0")
told = int(in_8_bits.get_property("DYNAMIC_QUANTIZATION_GROUP_SIZE"))
whole, other = in_8_bits(given)[0].copy(), in_float32(given)[0].copy()
alone = np.concatenate([in_8_bits(given[at : at + 1])[0].copy() for at in range(4)])
pairs = np.concatenate([in_8_bits(given[at : at + 2])[0].copy() for at in (0, 2)])
away = np.abs(alone - whole).max() / np.abs(whole).max()
print(f"openvino {ov.get_version()}: group size {told}; as without 8-bit activations: {np.array_equal(whole, other)}")
print(f"alone: {away:.1g} of the largest; pairs: {np.array_equal(pairs, whole)}")
is_as_seen = told == 32 and np.array_equal(whole, other) and 0 < away < 1e-4 and np.array_equal(pairs, whole)
print("as seen before" if is_as_seen else "FAILED: the library behaves in another way than this file says")
sys.exit(not is_as_seen)
PYTHON
