"""HAProxy as a process with its files: state machine, reload, check, set-up."""
