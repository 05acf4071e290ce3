"""Ask the planner: options as people write them become a request, and the request an answer.

The command line, Python (`modelyard.plan(...)`) and tables of requests come in through here, so
that an option means the same to all of them. `plan` itself is pure; files are read here.
"""
