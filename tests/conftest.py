"""Settings for all tests."""

from hypothesis import settings

# Time limits of single examples would fail on a busy machine; examples are the same each time.
settings.register_profile("dpglm", deadline=None, derandomize=True)
# Other examples each time, and as many as fit into minutes: `make laws`.
settings.register_profile("long", deadline=None, max_examples=5000)
settings.load_profile("dpglm")
