-- Version 7 for SQLite: rollups of samples.

