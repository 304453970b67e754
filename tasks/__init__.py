"""Tasks: which trial is made. A task names one instance of one world, for ever."""
