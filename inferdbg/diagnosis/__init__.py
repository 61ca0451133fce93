"""Diagnosis: rules over a Window that say what is wrong, how sure, and what to type next."""
