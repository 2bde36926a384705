"""What an operator sees of a process that goes on: lines of its log, metrics, the live page."""
