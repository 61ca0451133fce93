"""One file a section: a section is one part of a Snapshot, filled by one or more probes."""
