"""What [traffic] of the run file adds to messages: bytes that say nothing, so that sizes say nothing."""
