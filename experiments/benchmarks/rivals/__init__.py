"""Runs the engines that users would take instead of GoodSpeed, each as a process with its own environment."""
