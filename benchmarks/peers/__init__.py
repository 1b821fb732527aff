"""Other libraries on the same rows: problems, one adapter per library, scores, and the table."""
