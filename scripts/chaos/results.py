"""Compares an interrupted run with an undisturbed one."""

from pathlib import Path

from runner.run_directory.verification import comparison


def differences(once: Path, interrupted: Path) -> list[str]:
    """Prints a bitwise comparison of two runs. Returns a line for each part that differs."""
    parts = comparison.compare(once, interrupted)
    bits, rows = (sum(getattr(part, name) for part in parts) for name in ("bits", "missing"))
    print(comparison.render(parts))
    print(f"{bits} differing bits, {rows} lost or duplicate rows", flush=True)
    return [
        f"{kind}: {part.differing} differ" for kind, part in comparison.differing(parts).items()
    ]
