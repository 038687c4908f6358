-- Version 7 for PostgreSQL and TimescaleDB: what retention needs to know.

