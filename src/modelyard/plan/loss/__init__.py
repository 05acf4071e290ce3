"""What loss a run will end at: a scaling law, its prior, and its fit to the user's pilot runs.

| module    | what is there                                                                      |
|-----------|------------------------------------------------------------------------------------|
| `law`     | `LossLaw`: predicts with an interval, says how far it extrapolates, and inverts   |
| `prior`   | `PRIOR`: what is believed about data that nobody has trained on yet                |
| `fitting` | `refit_law`: the law after pilot runs                                              |
| `repeats` | what tokens are worth that were seen before                                        |
"""

from modelyard.plan.loss.fitting import Pilot, refit_law
from modelyard.plan.loss.law import LossEstimate, LossLaw
from modelyard.plan.loss.prior import PRIOR
from modelyard.plan.loss.repeats import effective_tokens

__all__ = ["PRIOR", "LossEstimate", "LossLaw", "Pilot", "effective_tokens", "refit_law"]
