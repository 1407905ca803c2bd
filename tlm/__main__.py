"""`python -m tlm` is the `tlm` command."""

from .cli import main

main()
