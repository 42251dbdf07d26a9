"""The engines of both nodes, each with a paged KV cache and one packed forward pass of many sessions.

`base.py` says what an engine is, `engines.py` finds one by its name.
"""

import sys

# Importing OpenVINO tells Google Analytics so, with an id that is kept in ~/intel, unless this package is missing.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
