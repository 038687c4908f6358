-- Version 7 for SQLite: the views for users, bounded by the times of jobs.

