"""What solvers are put together from: schedules, outputs, proximal steps."""
