"""The task: the public specification that devices, learners and monitors share, block by block."""
