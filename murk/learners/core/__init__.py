"""What every protocol uses: estimators, problems, covariates, curves, symmetric matrices."""
