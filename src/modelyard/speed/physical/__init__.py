"""How long a training step takes and how much memory it needs, from physics and specifications.

| module     | what is there                                                                     |
|------------|-----------------------------------------------------------------------------------|
| `columns`  | `Columns`: configurations as arrays, one element each                             |
"""
