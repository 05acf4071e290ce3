"""Models that can be trained, one file each, and `registry.build`, which makes them by name.

| module          | what is there                                                          |
|-----------------|------------------------------------------------------------------------|
| `registry`      | `build(name_or_spec, config)`: own models, Hugging Face's and a user's |
| `options`       | what a shape does not say: activation, rotary base, dropout, recompute |
| `batches`       | what each kind of model is trained on, made from rows of tokens        |
| `blocks`        | norms, rotary positions, attention and feed-forward parts              |
| `gpt`           | decoders: GPT-2 to Llama                                               |
| `bert`          | encoders with masked tokens                                            |
| `t5`            | encoder and decoder with corrupted spans                               |
| `multitask`     | one trunk, several heads and losses                                    |
| `context_mlp`   | a feed-forward model of the next word over an embedding from anywhere  |
| `word2vec`      | embeddings of words from their neighbours, by skip-grams               |
| `hidden_markov` | a hidden-Markov model of text, trained by Baum–Welch                   |
| `hugging_face`  | any causal, masked or sequence-to-sequence model of `transformers`     |

Every model offers `prepare(tokens, samples) -> batch` and `loss(batch) -> mean loss`, so that a run
needs to know nothing else about it. Sizes in comments: B batch, L sequence, D width, H heads,
K heads of keys and values, S size of a head, V vocabulary.
"""
