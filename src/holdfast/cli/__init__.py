"""What people run: `python -m holdfast COMMAND`."""
