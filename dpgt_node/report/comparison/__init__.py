"""Several runs beside each other: ``dpgt report A B C --out cmp.html``."""
