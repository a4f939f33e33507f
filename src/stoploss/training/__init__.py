"""What a training program uses: tell its losses, and do what it is asked for. Standard library only."""
