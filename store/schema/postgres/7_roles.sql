-- Version 7 for PostgreSQL and TimescaleDB: the roles of the database (PostgreSQL only).

