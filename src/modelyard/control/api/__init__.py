"""The yard over HTTP: what people and their programs may ask, checked on every call."""
