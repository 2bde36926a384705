from dpgt_node.errors import keep_checks

keep_checks()
