-- Version 7 for SQLite: what retention needs to know.

