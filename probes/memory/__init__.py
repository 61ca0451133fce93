"""An engine's objects as facts: found by a map of ``probes/maps``, read by ``probes/pymem``."""
