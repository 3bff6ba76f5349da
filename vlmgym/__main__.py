"""`python -m vlmgym` is the `vlmgym` command."""

from vlmgym.cli.main import main

if __name__ == "__main__":
    main()
