"""How facts look: a Textual application with one file a view, and the same content as plain text."""
