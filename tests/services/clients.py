"""The library's own clients, with sockets that are closed with them.

Such as are not are found in a later test, whichever the garbage collector happens to run in.
"""

from functools import partial

import kafka

from murk.stream.log.kafka.connection.network import LeakFreeClient

KafkaAdminClient = partial(kafka.KafkaAdminClient, kafka_client=LeakFreeClient)
KafkaConsumer = partial(kafka.KafkaConsumer, kafka_client=LeakFreeClient)
KafkaProducer = partial(kafka.KafkaProducer, kafka_client=LeakFreeClient)
