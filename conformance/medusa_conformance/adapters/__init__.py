"""Adapters: published Medusa packages behind the engine protocol, each in one file."""
