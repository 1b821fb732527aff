"""Linear models: classifiers and regressors."""
