"""One Kafka broker on this machine, without containers: for development and for the tests.

>>> from deploy.broker import Broker
>>> with Broker("/tmp/kafka") as broker:  # doctest: +SKIP
...     print(broker.url)
kafka://127.0.0.1:41873
"""

from deploy.broker.errors import BrokerError
from deploy.broker.jars import fetch
from deploy.broker.server import Broker

__all__ = ["Broker", "BrokerError", "fetch"]
