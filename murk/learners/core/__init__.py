"""What all protocols use: estimators, problems, covariates, curves, symmetric matrices."""
