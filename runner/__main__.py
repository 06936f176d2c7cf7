"""Makes `python -m runner` the same as `runner`."""

from runner import main

main.console()
