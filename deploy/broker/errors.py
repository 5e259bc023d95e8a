"""What can go wrong with a local broker, said so that it can be mended."""


class BrokerError(Exception):
    """The broker cannot be had; the message names what is missing and the remedy."""
