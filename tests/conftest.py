"""Settings that must stand before anything is imported."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models run ten times slower when threads share a busy core
settings.register_profile("inferdbg", deadline=None)  # on a busy machine the clock would decide what fails
settings.load_profile("inferdbg")
