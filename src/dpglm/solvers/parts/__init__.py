"""Parts that solvers share: schedules, defaults, linear algebra."""
