"""What all pictures share: figures, colours, quiet axes, text that fits its place."""
