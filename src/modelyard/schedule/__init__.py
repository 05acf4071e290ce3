"""Who runs where, now, and why the others wait.

`view` has what a policy is given and returns; `registry` finds policies by name; `explain` says
why a job waits; `invariants` checks decisions. Nothing is imported here, so that the command
line can list policies without loading numpy.
"""
