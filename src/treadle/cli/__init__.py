"""The `treadle` command: one file per subcommand, loaded when it is called."""
