"""Files and commands of the operating system, as every part that changes something uses them."""
