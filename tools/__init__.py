"""What an agent may call inside a world, and the ground floor of the house: errors live here too."""
