"""The commands, a module each; `murk.cli` imports one when it is called."""
