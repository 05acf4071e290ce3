"""Hugging Face configs → models, for every `model_type` of a table.

| module     | what is there                                                   |
|------------|-----------------------------------------------------------------|
| `family`   | `Family`: how a family writes its config and what it is built of |
| `decoders` | GPT-2 to Gemma 3                                                |
| `mixtures` | decoders with routed experts                                    |
| `encoders` | BERT's, T5's and BART's relatives                               |
| `reading`  | `FAMILIES`, `model_from_config`                                 |
"""
