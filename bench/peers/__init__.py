"""What people use today, beside ours, on the same rounds: `python -m bench.peers`.

models       Vowpal Wabbit and scikit-learn with River's methods
learning     in process: how well each predicts, what a round costs, what it holds
__main__     the command; what is served over HTTP is measured by `bench.http`
"""
