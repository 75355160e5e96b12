"""What is common to Horovod's frameworks."""
