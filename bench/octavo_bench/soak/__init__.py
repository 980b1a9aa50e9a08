"""A long run at the highest sustainable rate with every answer compared to the quiet machine's."""
