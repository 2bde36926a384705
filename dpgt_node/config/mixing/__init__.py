"""How agents mix what comes in."""
