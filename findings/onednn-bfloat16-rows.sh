#!/usr/bin/env bash
# oneDNN gives one row of a bfloat16 linear layer other bits than the same row among others, beyond 1,024 inputs.
#
# Library:  torch 2.13.0 with the oneDNN that is built into it, plain torch.nn.functional.linear on a CPU, one thread.
# Needs:    a CPU with AVX512_BF16 (Intel since Cooper Lake, AMD since Zen 4), Linux, Python 3.11 or later, 500 MB or, with
#           the wheel that brings CUDA, 6 GB of disk. ONEDNN_MAX_CPU_ISA keeps AMX, which was not tried, out of it.
# Seen:     with up to 1,024 inputs all numbers are equal. From 1,025 on 15 to 28 of 100,000 outputs of a row computed alone
#           differ from those of the same row among 2, 3, 8 or 32; rows among others agree, however many they are:
#
#               inputs   outputs   alone and among 2   among 2 and 3, 8, 32
#                  576    294912                   0                      0
#                 1024    294912                   0                      0
#                 1025    294912                  43                      0
#                 1536    294912                  45                      0
#                 4096    294912                  84                      0
#
# Meaning:  who promises the same bits in any batch must never compute one row alone. Nothing documents or forbids this.
# Exit:     0 if that is what the library does, 1 if it does something else, 2 if this CPU cannot show it.
# Run once: November 28, 2026, AMD EPYC (Zen 4), CPU build of torch.
set -euo pipefail

if ! grep -qw avx512_bf16 /proc/cpuinfo; then
    echo "not run: this CPU has no AVX512_BF16, so oneDNN multiplies bfloat16 with other kernels" >&2
    exit 2
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 "$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
from torch.nn.functional import linear

ROWS, OUTPUTS = 512, 576
torch.set_num_threads(1)
print(f"torch {torch.__version__}")
print("inputs   outputs   alone and among 2   among 2 and 3, 8, 32")
is_as_seen = True
for inputs in (576, 1024, 1025, 1536, 4096):
    generator = torch.Generator().manual_seed(0)
    weight = (torch.randn(OUTPUTS, inputs, generator=generator) * 0.05).bfloat16()
    rows = torch.randn(ROWS, inputs, generator=generator).bfloat16()
    one, two, *more = (torch.cat([linear(block, weight) for block in rows.split(n)]) for n in (1, 2, 3, 8, 32))
    alone = int((one != two).sum())
    among = sum(int((two != other).sum()) for other in more)
    print(f"{inputs:6} {two.numel():9} {alone:19} {among:22}")
    is_as_seen &= (alone > 0) == (inputs > 1024) and among == 0
print("as seen before" if is_as_seen else "FAILED: the library behaves in another way than this file says")
sys.exit(not is_as_seen)
PYTHON
