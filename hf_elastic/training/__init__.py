"""How a supernet is trained: arguments, trainer, and the losses, schedules and sampling they are made of."""
