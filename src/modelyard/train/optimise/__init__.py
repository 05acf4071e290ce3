"""How parameters follow gradients: optimizers, learning rates, and what batches are worth.

| module      | what is there                                                               |
|-------------|-----------------------------------------------------------------------------|
| `choose`    | `optimizer_for(model, settings)`: AdamW, SGD, LAMB, Adafactor; decay groups |
| `lamb`      | LAMB                                                                        |
| `adafactor` | Adafactor                                                                   |
| `schedules` | warm-up and the usual schedules, as functions of the step                   |
| `adaptive`  | a learning rate that falls when the committed losses do not                 |
| `scaling`   | the learning rate after a change of the batch: linear, root, AdaScale       |
| `noise`     | gradient noise scale, statistical efficiency, goodput                       |
| `precision` | loss scaling for fp16                                                       |
| `update`    | one update: unscale, check, clip, set the rate, step                        |

Whatever all workers must agree on is computed from what was committed, by pure functions.
"""
