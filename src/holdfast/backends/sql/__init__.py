"""What SQLite and PostgreSQL share: query texts, batches, migrations, and facets written once."""
