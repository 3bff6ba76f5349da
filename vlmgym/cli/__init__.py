"""The `vlmgym` command: one module per subcommand."""
