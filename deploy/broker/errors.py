"""What can go wrong with a local broker, said so that it can be fixed."""


class BrokerError(Exception):
    """The broker cannot be had; the message names what is missing and the remedy."""
