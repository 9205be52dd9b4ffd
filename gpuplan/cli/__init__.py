"""The command line: typer commands, one a file, thin over `operations` and `present`."""
