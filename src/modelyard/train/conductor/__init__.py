"""The small master of one training job: who takes part, which samples are whose, how far it is.

| module     | what is there                                                                    |
|------------|----------------------------------------------------------------------------------|
| `messages` | what workers and conductor tell each other                                       |
| `machine`  | events in, instructions out: the whole logic, without sockets, files or clocks   |
| `journal`  | committed steps on disk: what survives the conductor                             |
| `server`   | sockets and time around the machine                                              |
"""
