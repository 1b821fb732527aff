"""Settings for all tests."""

from hypothesis import settings

# Time limits of single examples would fail on a busy machine; examples are the same each time.
settings.register_profile("dpglm", deadline=None, derandomize=True)
settings.load_profile("dpglm")
