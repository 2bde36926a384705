"""``python -m dpgt_node VERB`` is ``dpgt VERB``."""

from dpgt_node.cli import main

if __name__ == "__main__":
    main()
