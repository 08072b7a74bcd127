"""Online kernel learning: the client, and the estimators for River and scikit-learn."""
