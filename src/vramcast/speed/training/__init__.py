"""Time of a training step: kernel laws for a micro-batch, exposed communication, the pipeline, the update."""
