"""The states of a run. Standard library only."""

import enum


class State(enum.StrEnum):
    """What a run is doing, or how it ended. Files and JSON contain the values."""

    PENDING = "waiting"
    """It has not started."""

    RUNNING = "running"
    """A process holds its lock."""

    UNRESPONSIVE = "silent"
    """A process holds its lock but sends no heartbeat."""

    PAUSED = "paused"
    """It stopped at `RunConfig.pause_at`, and continues later."""

    STOPPED = "stopped"
    """It ended early by its own rules."""

    PREEMPTED = "preempted"
    """A signal stopped it, or it was killed. The same command resumes it."""

    DONE = "done"
    """It reached its last step."""

    DIVERGED = "diverged"
    """Its loss or its weights were no longer finite."""

    FAILED = "failed"
    """An error ended it."""

    REJECTED = "refused"
    """A trial whose configuration is invalid."""

    DAMAGED = "damaged"
    """Some of its files cannot be read."""


ACTIVE = (State.RUNNING, State.UNRESPONSIVE)
"""A process holds the run's lock."""

FINISHED = (State.DONE, State.STOPPED)
"""The run has ended by itself."""

UNRESPONSIVE_SECONDS = 60.0
"""A process is unresponsive after this many seconds without a heartbeat."""
