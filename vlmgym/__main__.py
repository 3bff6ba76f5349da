"""`python -m vlmgym` is the `vlmgym` command."""

from vlmgym.cli import main

if __name__ == "__main__":
    main()
