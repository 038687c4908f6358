-- Version 7 for PostgreSQL and TimescaleDB: the views for users, bounded by the times of jobs.

