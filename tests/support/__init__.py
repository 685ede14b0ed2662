"""What several tests share: a training loop of plain numbers, and clocks that can be told the time."""
