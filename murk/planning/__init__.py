"""What a task would learn of so many people, before anybody has released anything."""
