"""Methods of stochastic gradient descent: nothing tracks the mean gradient."""
