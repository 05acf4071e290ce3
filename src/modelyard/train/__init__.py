"""The elastic runtime that runs inside workers, and the conductor that keeps them together."""
