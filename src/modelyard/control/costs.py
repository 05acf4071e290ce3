"""What a yard adds to a job's work, in seconds.

As `make bench-fidelity` measures it on two quiet cores (docs/benchmarks.md).
"""

from __future__ import annotations

#: A process.
COMMAND_START_SECONDS = 0.1
#: 5 s until torch is loaded and the first step is made, and 2 s after the last one.
TRAINING_START_SECONDS = 7.0
#: A change of size of a training job that goes on meanwhile: 1.8 s to grow, which is what it lacks
#: while the new worker starts, and nothing to give one up; here the mean.
RESIZE_SECONDS = 0.9
