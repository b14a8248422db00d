"""The way of the protocol's routes to the engine and back, unread"""
