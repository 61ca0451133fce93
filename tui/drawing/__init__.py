"""What a Window looks like as lines of inked text; pure, and without Textual."""
