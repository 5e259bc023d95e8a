"""The columns of a record: features and target, how they are coded, and public covariates."""
