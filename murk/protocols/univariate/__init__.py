"""The distribution of a target alone: shares of classes, or a mean (`protocol: univariate`)."""
