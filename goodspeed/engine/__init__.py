"""The engine of both nodes: checkpoints, a paged KV cache, one packed forward pass of many sessions."""

import sys

# Importing OpenVINO tells Google Analytics so, with an id that is kept in ~/intel, unless this package is missing.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
