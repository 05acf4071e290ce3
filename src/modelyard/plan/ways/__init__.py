"""Four ways to make a run fit, each priced by the same model of time, memory and loss.

| module     | what it changes                                                                   |
|------------|-----------------------------------------------------------------------------------|
| `shrink`   | the model: narrower or shallower, until time and money suffice                    |
| `stage`    | the course: shallow first, then stacked deeper                                    |
| `tune`     | the configuration, one choice at a time, beside full enumeration                  |
| `compress` | the origin: from trained weights by pruning, distillation or fewer bits           |
| `compare`  | all of them in one table                                                          |
"""

from modelyard.plan.ways.compare import Fit, ways
from modelyard.plan.ways.way import Way, WayName

__all__ = ["Fit", "Way", "WayName", "ways"]
