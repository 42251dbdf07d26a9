"""For all tests: one CPU thread, here and in the processes they start.

Small matrices gain nothing from more threads, and lose much when the machine has other things to do.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, which is after this
