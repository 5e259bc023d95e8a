"""What a deployment is made of: a local broker and, beside this package, files for containers."""
