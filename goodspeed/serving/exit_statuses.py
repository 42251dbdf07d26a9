"""The exit statuses of every command, and their description for the help."""

FAILED = 1
USAGE = 2
UNWRITABLE = 74  # EX_IOERR
INTERRUPTED = 130  # 128 + SIGINT
UNREAD = 141  # 128 + SIGPIPE

STATUSES = f"""\
exit status:
  0    done
  {FAILED}    a named error: a model, a port, a prompt or the network, in one line on standard error
  {USAGE}    wrong usage: an option, a value, or a file of settings or keys has to be changed
  {UNWRITABLE}   standard output cannot be written to
  {INTERRUPTED}  interrupted, with something unfinished
  {UNREAD}  whoever read standard output is gone"""
