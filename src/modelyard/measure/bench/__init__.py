"""Micro-benchmarks of the machine at hand: what the physical model of a step takes for granted.

| module        | what is there                                                                  |
|---------------|--------------------------------------------------------------------------------|
| `launch`      | fresh processes that measure, and that never outlive the one that started them |
| `worker`      | the program of such a process                                                  |
| `samples`     | how long something takes on a machine that others use too                      |
| `shapes`      | the small GPT and BERT models that are measured, as the planner sees them      |
| `networks`    | the same models in torch                                                       |
| `about`       | what the machine is: cores, memory, accelerators                               |
| `matmul`      | the rate of matrix products by precision and size                              |
| `memory`      | the bandwidth of memory                                                        |
| `collectives` | all-reduce and all-gather between processes                                    |
| `layer`       | one transformer block, forward and backward                                    |
| `training`    | whole training steps of small models, and the peak of their memory             |

Only `networks` and what runs inside a worker import torch, which is in the extra `train`.
"""
