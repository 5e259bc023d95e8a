"""The log on a Kafka cluster; `murk.stream.open_log` opens it by URL.

A log has four topics with equally many partitions, so that no partition holds up another:

- ``murk-NAME-releases``: what devices send, with the broker's append time;
- ``murk-NAME-models``, compacted: each partition's newest iterate (or the first partition's, if partitions share
  models), and the task's document under the key ``task``;
- ``murk-NAME-states``, compacted: each partition's state, with its offset in a header;
- ``murk-NAME-dead-letters``: what could not be learned.
"""
