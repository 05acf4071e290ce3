"""Many plans at once: files of requests, worked through here or by Apache Beam."""
