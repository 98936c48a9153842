"""Commands on files and on finished runs, without Ray: score programs, label groups, score a run again."""
