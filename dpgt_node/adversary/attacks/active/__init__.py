"""What belongs to active adversaries: who did not follow the protocol, and what a crafted model gives away."""
