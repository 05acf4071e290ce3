"""The command line: one file per verb, loaded when that verb is called."""
