"""The command line: one verb a file in ``verbs/``, one owner of stdout, one place where errors become exit codes."""
