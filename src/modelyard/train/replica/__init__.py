"""A replica of several processes: FSDP2, tensor parallelism, pipelines and their products.

| module      | what is there                                                              |
|-------------|----------------------------------------------------------------------------|
| `places`    | where a process stands in its replica; the lead forks the others           |
| `relay`     | one voice to the conductor for all places of a replica                     |
| `together`  | torch's process group and mesh within a replica, and what places agree on  |
| `shard`     | parameters divided over places by FSDP2                                    |
| `tensor`    | matrices divided over places by DTensor                                    |
| `pipeline`  | layers divided over places, and 1F1B through them                          |
| `divide`    | all three in turn: what one place has of a model, and how it learns        |
| `ownership` | which of the places that hold the same tensor answers for it               |
| `keeping`   | checkpoints that places write their parts of, and read theirs from         |
| `sums`      | gradients of local shards summed over replicas                             |
| `job`       | the loop of one place                                                      |

A replica lives and dies as one: what ends one of its processes ends all of them.
"""
