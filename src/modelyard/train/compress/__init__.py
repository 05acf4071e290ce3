"""Fewer bytes for what travels, with error feedback: what one step drops, the next one adds.

| module         | what travels                                                              |
|----------------|---------------------------------------------------------------------------|
| `half`         | 16 bits per number (fp16 or bf16)                                         |
| `int8`         | 8 bits per number and a scale per block                                   |
| `top_k`        | the largest numbers and where they are                                    |
| `power_sgd`    | two thin factors of a matrix                                              |
| `one_bit`      | signs and a scale per block                                               |
| `feedback`     | `State`, `Encoded`, `Wire` and the sum that all of them keep              |
| `combinations` | `compressor(name, options)`, and which aggregations each can go with      |

Encoding changes nothing: it returns the payload and the state that follows, and that state is taken
over when the step is committed. A step that is discarded leaves no trace.
"""
