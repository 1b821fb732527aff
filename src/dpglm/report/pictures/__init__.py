"""What the pictures of a report are drawn with."""
