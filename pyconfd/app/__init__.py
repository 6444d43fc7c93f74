"""The daemon and what is built around its loop; what several commands share."""
