"""Makes the lease of a bucket expire after two seconds instead of a minute, when it is imported."""

from runner.storage import lease

lease.PATIENCE_SECONDS, lease.BEAT_SECONDS = 2.0, 0.5
