"""A world on a virtual clock in which the state machines that serve meet: `VerifyCore` and `DraftCore`.

Only what surrounds them is simulated: time, the network, the two models, their speed and how often they agree. A world
follows from its settings and one seed. `World` builds the nodes; a node sees of the world what `surroundings.py` lists.
"""
