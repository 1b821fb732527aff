"""The papers' claims, measured: each module is a command that writes into ``docs/``."""
