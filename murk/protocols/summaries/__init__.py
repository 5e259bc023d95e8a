"""GaussMix: learning from what organisations release. Only the estimators, not imported here, need River."""
