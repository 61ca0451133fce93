"""Recordings and the live memory of the past: Snapshots as bytes, and back."""
