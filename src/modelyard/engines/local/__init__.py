"""Processes of this machine: `engine.LocalEngine`.

Nothing is imported here: the keeper of every task passes through this module when it starts.
"""
