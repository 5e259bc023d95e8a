"""Public-data GLM: learning from second moments released once, and public covariates; imports no River."""
