"""Where facts come from: one file a source. ``read()`` touches the world, ``parse`` is pure."""
