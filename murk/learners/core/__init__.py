"""Code that all protocols use: estimators, covariates, mean functions, symmetric matrices."""
