"""A run for the controller that trains nothing, and logs what it is asked for."""

from runner.errors import DivergedError


class FakeRun:
    """Its log has a line for each call that matters. Override what a test is about."""

    def __init__(self, step=0, reasons=None, decisions=None):
        self.log = []
        self.step = step
        self.committed = None
        self.writing_cost = 0.0
        self.reasons = reasons or {}  # to stop, by the step of an evaluation
        self.decisions = decisions or {}  # from outside, by the step of a commit

    def train(self, steps):
        self.log.append(f"train {steps}")
        return {"training_loss": 0.5}

    def broken(self, loop, *, variables):
        return None

    def recover(self, reason):
        raise DivergedError(reason)

    def after_loop(self, loop):
        self.log.append(f"loop {loop.step}{' row' if loop.summary else ''}")

    def decide(self, step):
        return self.decisions.get(step)

    def commit(self, step):
        if step != self.committed:
            self.log.append(f"commit {step}")
            self.committed = step

    def wait(self):
        self.log.append("wait")

    def has_evaluated(self, step):
        return False

    def evaluate(self, step):
        self.log.append(f"evaluate {step}")
        return self.reasons.get(step)

    def finish(self, step):
        self.log.append(f"finish {step}")

    def of(self, *kinds):
        """The lines of some kinds."""
        return [line for line in self.log if line.startswith(kinds)]
