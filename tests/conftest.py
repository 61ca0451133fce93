"""Settings that must stand before anything is imported."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models run ten times slower when threads share a busy core
