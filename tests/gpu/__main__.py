"""`python -m tests.gpu`: every check on this machine's GPU, with no more than torch and transformers installed.

Under pytest the same checks are `tests/gpu/test_gpu.py`. Exit status 1 without a GPU, or when a check fails.
"""

import argparse
import sys
import time
import traceback

try:
    import torch
except ModuleNotFoundError:
    sys.exit(f"{sys.executable} has no torch; give `make gpu` the Python that has it: make gpu GPU_PYTHON=...")

from tests.gpu.checks import CHECKS, ON_CUDA_ONLY, Check

NO_CUDA = "this machine has no CUDA device, or torch is a CPU build; the GPU checks were not run"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cpu runs the checks without a GPU, to try them")
    device = torch.device(parser.parse_args(argv).device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print(NO_CUDA, file=sys.stderr)
        return 1
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"torch {torch.__version__} on {where}")
    checks = CHECKS | (ON_CUDA_ONLY if device.type == "cuda" else {})
    failed = [name for name, check in checks.items() if not passes(name, check, device)]
    print(f"{len(checks) - len(failed)} checks passed, {len(failed)} failed")
    return 1 if failed else 0


def passes(name: str, check: Check, device: torch.device) -> bool:
    started = time.perf_counter()
    try:
        measured = check(device)
    except Exception:  # whatever it is: the other checks are worth running
        traceback.print_exc()
        print(f"FAILED {name}")
        return False
    print(f"ok     {name} ({time.perf_counter() - started:.1f} s){f': {measured}' if measured else ''}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
