"""A seeded swarm of small runs under faults, over the daemons' own machines, gate and per-agent functions.

    plan      what one seed means: a run, its options, the faults and when they strike
    clock     virtual time
    network   streams that lose a suffix when they break, links that are cut one way, delays
    disk      a state directory with the store's semantics
    process   what dies, freezes and comes back; every effect boundary is a place to die
    agent     the agent daemon around AgentMachine, in the order of actions of runtime.node and runtime.driver
    edges     its streams to and from neighbours, as runtime.links and runtime.inbound, through the gate of ``wire``
    uplink    its stream to the coordinator, as runtime.uplink
    coordinator   the coordinator daemon around CoordinatorMachine, as runtime.coordinator and members
    checkers  what must hold after each effect
    world     all of it together: one trial
    trial     one seed or many, and a plan made smaller

Nothing here reads a clock, a file or entropy: a seed means the same trial on every machine.
"""
