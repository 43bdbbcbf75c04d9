"""What people run: `holdfast COMMAND`, or `python -m holdfast COMMAND`."""
