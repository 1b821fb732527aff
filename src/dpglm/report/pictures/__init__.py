"""Drawing of a report's pictures."""
