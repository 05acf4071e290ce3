"""What a job learns from: text made into tokens once, samples that anybody can read by number.

places.py      where the input lies: files, folders, object stores
readers.py     text, JSONL, Parquet and tokens, piece by piece
tokenizer.py   bytes or BPE; tokenizer_files.py writes them as Hugging Face does
tokens.py      the files that preparing writes and training reads
prepare.py     from one to the other, on all cores, resumable
objectives.py  masks and corrupted spans, the same for the same sample
packing.py     whole documents in samples
documents.py   one document a sample, with its label
mixing.py      several data sets by weights
sources.py     the data of a job: one data set or several, read as one
leases.py      who has which range, where workers do not keep step
"""
