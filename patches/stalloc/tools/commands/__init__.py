"""The subcommands of `stalloc`: each module has HELP, prepare_parser and run."""
