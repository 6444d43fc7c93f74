"""Settings for the whole suite."""

from hypothesis import HealthCheck, settings

# A busy machine is no failure: no deadline. The same examples each time: a red run can be repeated.
settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", deadline=None, max_examples=2000)
settings.load_profile("suite")
