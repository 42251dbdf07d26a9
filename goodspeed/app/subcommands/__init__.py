"""The subcommands of `goodspeed`, one file each: NAME, HELP, `add_arguments(parser)` and `run(namespace)`.

To add one, write its file and name it in `goodspeed/app/cli.py`.
"""
