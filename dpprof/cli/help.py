"""`--help` in groups: commands by what they are for, options by what they set."""

import click


class GroupedCommands(click.Group):
    """A group of commands that lists them under headings."""

    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)  # type: ignore[arg-type]
        self.headings: dict[str, list[click.Command]] = {}

    def add_under(self, heading: str, command: click.Command) -> None:
        """Add a command under a heading."""
        self.add_command(command)
        self.headings.setdefault(heading, []).append(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A list for each heading, the names of all of them equally wide."""
        width = max(len(str(command.name)) for command in self.commands.values())
        room = formatter.width - width - 6
        for heading, commands in self.headings.items():
            rows = [(str(c.name).ljust(width), c.get_short_help_str(room)) for c in commands]
            with formatter.section(heading):
                formatter.write_dl(rows)


class GroupedOption(click.Option):
    """An option with the heading under which help lists it."""

    def __init__(self, *arguments: object, heading: str = "Options", **more: object) -> None:
        super().__init__(*arguments, **more)  # type: ignore[arg-type]
        self.heading = heading

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """The spelling with dashes alone stands for the one with underscores."""
        return f"{self.opts[0]} {self.metavar}", self.help or ""


class GroupedOptions(click.Command):
    """A command that lists its options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A list for each heading, in the order in which the headings first come."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if not isinstance(parameter, click.Option):
                continue
            heading = parameter.heading if isinstance(parameter, GroupedOption) else "Help"
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(heading, []).append(record)
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=_LONGEST_OPTION)


# What is longer stands on a line of its own.
_LONGEST_OPTION = 26
