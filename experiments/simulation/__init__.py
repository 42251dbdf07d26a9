"""A world on a virtual clock in which the very state machines that serve meet: `VerifyCore`, `Session`, `VerifyLink`.

Only what is around them is made up: time, the network, the two models (`text.py`), their speed and how often they
agree (`acceptance.py`). Everything follows from one seed. No threads, sockets, sleeping or torch.
"""
