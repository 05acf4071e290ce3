"""The small process beside each task: it starts the program, keeps its log and says how it ended.

It runs `python -I -S`, once per task and for as long as the task, so every import counts: these
modules use a few light ones of the standard library and each other. `dataclasses`, `typing`,
`json`, `subprocess` and `pathlib` would double its memory and the time that it takes to start.

A task is three processes, each the parent of the next, all outliving whoever asked for the task:

    guard      claims the task; when the keeper is killed, kills everything below
    keeper     starts the program, writes its log, stops it when asked, notes how it ended
    program    what the user wants to run, in a session of its own

Guard and keeper are subreapers: a process that loses its parent anywhere below becomes their
child. So "has no children any more" means that nothing is left of the task, whatever sessions and
groups its processes have moved to.
"""
