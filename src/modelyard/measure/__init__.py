"""What was measured: published rows and own runs, how well they are predicted, calibration.

| module            | what is there                                                             |
|-------------------|---------------------------------------------------------------------------|
| `rows`, `words`   | speed rows of published tables or of users → columns and seconds          |
| `memory_rows`     | the same for peaks of memory                                              |
| `loss_rows`       | the same for losses                                                       |
| `score`           | how well rows are predicted                                               |
| `bench`           | micro-benchmarks of the machine at hand                                   |
| `survey`          | what a calibration measures, in which order                               |
| `calibration_fit` | from a survey to what is believed, checked on runs left out               |
| `calibration`     | a calibration and its file                                                |
| `refine`          | runs of the user refine a calibration                                     |
"""
