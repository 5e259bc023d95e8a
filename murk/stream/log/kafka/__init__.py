"""The log on a Kafka cluster; `murk.stream.open_log` opens it by URL.

One log is four topics, each with a partition for every chain:

- ``murk-NAME-releases``: what devices send, with the broker's own append time;
- ``murk-NAME-models``: each chain's newest iterate (the first one's, where chains share models), compacted; and the
  task's document, under the key ``task``;
- ``murk-NAME-states``: each chain's state and, in a header, the offset that belongs to it, compacted;
- ``murk-NAME-dead-letters``: what could not be learned.

A chain has one partition of each topic to itself, so that nothing that happens to one chain holds up another; where
chains share models, no new ones come while the first chain is held up.
"""
