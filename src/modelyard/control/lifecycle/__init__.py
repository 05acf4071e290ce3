"""From submission to end: a machine without clocks, files or sockets.

    Event → Lifecycle.handle → Outcome (changed records, entries of the log)

and, of the records that are then true and of what the engine reports,

    observe → Events             what happened to tasks that nobody has noted yet
    differences → Orders         which tasks to start, to stop and to forget

The server, the simulator of faults and the tests drive the same code.
"""
