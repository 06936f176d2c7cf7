"""How what was interrupted compares with what was not."""

from pathlib import Path

from runner.run_directory.verification import comparison


def differences(once: Path, interrupted: Path) -> list[str]:
    """Prints a comparison of two runs, bit by bit; returns a line for each part that differs."""
    parts = comparison.compare(once, interrupted)
    bits, rows = (sum(getattr(part, name) for part in parts) for name in ("bits", "missing"))
    print(comparison.render(parts))
    print(f"{bits} differing bits, {rows} lost or duplicate rows", flush=True)
    return [
        f"{kind}: {part.differing} differ" for kind, part in comparison.differing(parts).items()
    ]
