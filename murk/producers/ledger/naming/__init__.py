"""What a ledger calls people: keyed hashes, their key, and the migration to them."""
