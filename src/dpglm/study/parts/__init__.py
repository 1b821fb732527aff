"""The parts of a study: what it explores, learns and evaluates."""
