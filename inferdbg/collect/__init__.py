"""Asking the probes of one target, round by round, and making Snapshots of what they say."""
