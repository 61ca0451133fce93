"""One file a verb: its name is the verb, ``command`` in it is what click runs, its help ends with an example."""
