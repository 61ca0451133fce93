"""Reads the Python objects of another process, or of a core file: nothing is stopped, written or asked for."""
