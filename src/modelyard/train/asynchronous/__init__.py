"""Training out of step: a server has the parameters, workers push gradients when they have some.

| module   | what is there                                                                   |
|----------|---------------------------------------------------------------------------------|
| `pace`   | how far workers may be apart, how often they fetch and push, what servers do    |
| `memory` | parameters in shards, tables by rows, their updates                             |
| `wire`   | trees of tensors over an authenticated connection                               |
| `server` | the process: memory, ledger of samples, journal, snapshots                      |
| `run`    | a worker's part, with the same loop as `train/run.py`                           |
| `job`    | a worker of a job that was written as a file                                    |
"""
