"""Standard output and standard error of a command, which may fail (a full disk, a closed descriptor) or be left unread.

- `standard.py`: puts them in place, and says goodbye at the end of a command.
- `output.py`: the two streams, and which of their lines may be dropped.
- `writer.py`: the thread that writes for a daemon, whose event loop must never wait for a reader.
"""
