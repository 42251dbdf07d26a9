"""Settings of all tests: one CPU thread, also in the processes they start, and no deadlines.

Small matrices gain nothing from more threads, and lose much when the machine has other things to do. A file whose tests
start nodes or watch the clock says so (`pytestmark = pytest.mark.alone`): they run one by one, after all others have
run side by side. Some of them, one of each kind, are `essential`: `make test` runs those, and `make test-all` all.
"""

import os

from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, which is after this

settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
