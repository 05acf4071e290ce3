"""The small master of one training job: who takes part, which samples are whose, how far it is.

| module      | what is there                                                                    |
|-------------|----------------------------------------------------------------------------------|
| `messages`  | what workers and conductor tell each other                                       |
| `events`    | what happens to a conductor, and what is to be done                              |
| `progress`  | what a job wants, and what is committed of it                                    |
| `deadlines` | how long a worker may be silent, and how long its step may take                  |
| `machine`   | events in, instructions out: the whole logic, without sockets, files or clocks   |
| `journal`   | committed steps on disk: what survives the conductor                             |
| `server`    | sockets and time around the machine                                              |
"""
