"""What another package's entry point names: a launcher's entry in the table, apart from its code."""

from dpprof.vocabulary.launcher_info import LauncherInfo

TOY = LauncherInfo("toy", "starts a child process and little more", "example_launcher:ToyLauncher")
