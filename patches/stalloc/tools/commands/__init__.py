"""The subcommands of `stalloc`: each module has prepare_parser and run. stalloc/cli.py imports the one that runs."""
