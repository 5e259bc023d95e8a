"""The shuffler: takes releases from an input log, and forwards them in shuffled crowds to the log of releases.

The store keeps releases on disk until their crowd is complete. A release enters the store under a random id, which
decides its partition and its place in its crowd: the store itself does not know the order of arrival.
"""
