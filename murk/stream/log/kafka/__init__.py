"""The log on a Kafka cluster; `murk.stream.open_log` opens it by URL.

A log has four topics, each with a partition for every chain, so that no chain holds up another:

- ``murk-NAME-releases``: what devices send, with the broker's append time;
- ``murk-NAME-models``, compacted: each chain's newest iterate (or the first chain's, if chains share models), and the
  task's document under the key ``task``;
- ``murk-NAME-states``, compacted: each chain's state, with its offset in a header;
- ``murk-NAME-dead-letters``: what could not be learned.
"""
