-- Version 7 for PostgreSQL and TimescaleDB: rollups of samples.

