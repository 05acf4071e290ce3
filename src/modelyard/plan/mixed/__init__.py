"""Devices of several kinds in one run.

| module      | what is there                                                              |
|-------------|----------------------------------------------------------------------------|
| `effort`    | how hard to search: greedy, beam or everything                             |
| `team`      | `Team`: who does what, and how long a step of it takes                     |
| `by_data`   | each kind has replicas of its own, and a share of the batch                |
| `by_layers` | each kind has stages of one pipeline, and a share of the layers            |
| `plans`     | teams as plans beside those of a single kind                               |

Either way a step takes as long as the slowest kind, so shares are chosen to make that one as fast
as possible. Matrices are divided among equal devices only.
"""
