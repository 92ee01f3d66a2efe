"""The commands of the command line, one file each: `add_to` describes its arguments, `run` does the work."""
