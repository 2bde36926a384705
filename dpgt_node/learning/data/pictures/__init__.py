"""Pictures: the sets that have names, folders of classes, and how arrays hold them."""
