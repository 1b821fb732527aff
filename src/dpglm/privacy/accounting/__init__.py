"""From privacy events to (epsilon, delta), and from a budget to noise."""
